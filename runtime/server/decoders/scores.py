"""What classes that generate nothing have in place of a head: srt/models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from runtime.server.config import ModelConfig
from runtime.server.decoders.fields import HF, Fields
from runtime.server.errors import Unsupported
from runtime.server.table_config import ScoresConfig

_BARE = ("LlamaEmbeddingModel", "MistralModel", "Qwen3Model")
_TWO = ("score.0", "score.2")
NORMAL_WEIGHTS = "LlamaForSequenceClassificationWithNormal_Weights"
_WEIGHTS = ("weights.fc.0", "weights.fc.2", "weights.fc.4")
_LABELS = 2  # of transformers' PretrainedConfig


def without_head(model: ModelConfig, hf: HF, architecture: str) -> ModelConfig:
    """The same layers, of a class that has none."""
    if architecture in _ENCODERS:
        return replace(model, scores=_ENCODERS[architecture](hf))
    if architecture in _BARE:
        names = replace(model.names, layers="layers", embedding="embed_tokens", norm="norm")
        return replace(model, scores=ScoresConfig(), names=names)
    scores = _scores(hf, architecture)
    return model if scores is None else replace(model, scores=scores)


def _scores(hf: HF, architecture: str) -> ScoresConfig | None:
    if architecture == "LlamaForClassification":
        return ScoresConfig(("classification_head",), _told_apart(hf))
    if architecture == NORMAL_WEIGHTS:
        return ScoresConfig(("score",), _in_pairs(hf), scores_all=True, weights=_WEIGHTS)
    if architecture == "NanbeigeForSequenceClassification":
        return ScoresConfig(("score",), _labels(hf), scores_all=True)
    if architecture in ("LlamaForSequenceClassification", "Gemma2ForSequenceClassification"):
        return ScoresConfig(("score",), _labels(hf))
    if architecture in ("Qwen2ForSequenceClassification", "Qwen3ForSequenceClassification"):
        return ScoresConfig(("score",), _labels(hf), bias=True)
    if architecture in ("Qwen2ForRewardModel", "Qwen3ForRewardModel"):
        return ScoresConfig(_TWO, 1, bias=True)
    return ScoresConfig(("v_head",), 1) if architecture == "InternLM2ForRewardModel" else None


def _labels(hf: HF) -> int:
    """By their names, where a file has these, whatever number it tells beside them."""
    fields = Fields(hf, {})
    if fields.has("id2label"):
        return fields.checked_size("how many labels id2label has", len(fields.section("id2label")))
    return fields.size("num_labels", _LABELS)


def _in_pairs(hf: HF) -> int:
    """A score, and how sure that is, which nobody asks."""
    labels = _labels(hf)
    if labels % 2:
        raise Unsupported(f"config.json: {labels} labels do not come in pairs, as SGLang's class asks")
    return labels


def _told_apart(hf: HF) -> int:
    """Of a class that no config class knows of."""
    fields, name = Fields(hf, {}), "classification_out_size"
    if not fields.has(name):
        raise Unsupported(f"config.json: {name} is missing: SGLang's class asks how much it tells apart")
    return fields.size(name)


def _first(hf: HF) -> ScoresConfig:
    return ScoresConfig(pools="first")


def _scored(*names: str) -> Callable[[HF], ScoresConfig]:
    return lambda hf: ScoresConfig(names, _labels(hf), bias=True, by="tanh", pools="first")


_ENCODERS: Mapping[str, Callable[[HF], ScoresConfig]] = {
    **dict.fromkeys(("BertModel", "Contriever", "XLMRobertaModel"), _first),
    "BertForSequenceClassification": _scored("pooler.dense", "classifier"),
    "XLMRobertaForSequenceClassification": _scored("classifier.dense", "classifier.out_proj"),
}
