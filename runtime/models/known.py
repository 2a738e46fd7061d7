"""The list of the core's families, and the reader that finds the family of a config.json."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module

from runtime.models.reading import HF, read
from runtime.server.checkpoint import architecture_of
from runtime.server.config import Gaps, ModelConfig
from runtime.server.errors import Unsupported
from runtime.server.family import Family
from runtime.server.nearest import meant
from runtime.server.quantized import weights_of

# The file of each model_type's family. Only the family that is needed is imported.
FAMILIES = {
    **dict.fromkeys(("llama", "mistral"), "llama"),
    **dict.fromkeys(("qwen3", "qwen3_moe"), "qwen3"),
    **dict.fromkeys(("deepseek_v3", "kimi_k2", "deepseek_v32"), "deepseek"),
    "glm4_moe": "glm4",
    "glm_moe_dsa": "glm5",
    "gemma3_text": "gemma3",
    **{name: name for name in ("mixtral", "gpt_oss", "minimax_m2", "qwen3_next", "nemotron_h")},
}


def family_named(model_type: str) -> Family:
    families: Iterable[Family] = import_module(f"runtime.models.{FAMILIES[model_type]}").FAMILIES
    return next(family for family in families if family.model_type == model_type)


def family_of(hf: HF) -> Family:
    model_type = str(hf.get("model_type", ""))
    if model_type not in FAMILIES:
        known = meant(model_type, FAMILIES) or f"here are {', '.join(sorted(FAMILIES))}"
        raise Unsupported(f"model_type {model_type[:60]!r} is not of the core's families: {known}")
    family, named = family_named(model_type), architecture_of(hf)
    if named != family.architecture:
        what = f"architecture {named[:60]!r}" if named else "config.json names no architecture"
        raise Unsupported(f"{what}: of model_type {model_type} the core has {family.architecture} alone")
    _check_own_code(hf, family)
    return family


def _check_own_code(hf: HF, family: Family) -> None:
    """Refuse a checkpoint with classes of its own, unless their names are those of SGLang's classes."""
    classes = hf.get("auto_map") or {}
    if not isinstance(classes, Mapping):
        raise Unsupported(f"config.json: auto_map is {classes!r:.60}: an object is needed")
    known = {family.config_class, family.own_config, family.architecture}
    for name in ("AutoConfig", "AutoModelForCausalLM"):
        own = str(classes.get(name) or family.architecture).rpartition(".")[2]
        if own not in known:
            raise Unsupported(f"config.json: auto_map names a class of its own, {own[:60]}: a server runs it")


def model_config(hf: HF) -> ModelConfig:
    family = family_of(hf)
    model = family.layers(read(family.config, hf))
    model = replace(model, quantized=weights_of(hf))
    return replace(model, gaps=Gaps(model.gaps.obstacles, tuple(_uncomputed(model))))


def _uncomputed(model: ModelConfig) -> Iterator[str]:
    """Yield each kind of weights whose size is known but which no kernel here multiplies."""
    weights = model.quantized
    for kind in dict.fromkeys((weights.linear, weights.experts)):
        if kind is not None and kind.name == "fp8" and kind.per == "tensor" and not kind.is_static:
            yield "quantization_config: this runtime has no layers in fp8 with scales made on the way"
    if (plain := model.plain_experts) is not None:
        yield f"quantization_config: {plain} are excluded: this runtime has no plain experts beside quantized"
