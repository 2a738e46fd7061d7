"""A checkpoint as the server's arguments see it: its config.json, of any family, known or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from runtime.server import architectures
from runtime.server.bounds import TOKENS, check_size
from runtime.server.config import ModelConfig
from runtime.server.declared import MIXED, declared_quantization, is_whole, mixed_lists
from runtime.server.decoders.dense import NO_DENSE, DenseFiles, read_dense
from runtime.server.decoders.fields import architecture_of
from runtime.server.decoders.gpt_names import with_usual
from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError, Unsupported
from runtime.server.formats.rows import as_rows
from runtime.server.modelopt_mxfp8 import ALGORITHM as MXFP8

HF = Mapping[str, Any]
# Where a multimodal model's language model is described, in the order SGLang looks.
_TEXT_SECTIONS = ("text_config", "llm_config", "language_config", "thinker_config")
_CONTEXT_LENGTHS = (
    *("max_sequence_length", "seq_length", "max_seq_len", "model_max_length", "max_position_embeddings"),
)
_LARGEST = 1 << 40
_OWN_CLASS = "bfloat16"  # of srt/configs/beam.py and muse_spark.py, where nothing is told
# transformers gives them the length before stretching, if only the same (modeling_rope_utils.py).
_TELL_THE_STRETCHED = ("llama3", "yarn", "longrope")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`quant_file` is ModelOpt's hf_quant_config.json, where the folder has one; `unread_files` are others
    in which a method may be told how the weights were quantized, `dense_files` those
    of sentence-transformers."""

    hf: HF
    quant_file: HF = field(default_factory=dict)
    unread_files: tuple[str, ...] = ()
    dense_files: DenseFiles = NO_DENSE

    def model_config(self) -> ModelConfig:
        """Its layers, of a family that this runtime can build."""
        model = model_config(self.quantized)
        if model.scores is None or model.scores.pools != "mean":
            return model
        return replace(
            model, scores=replace(model.scores, dense=read_dense(self.dense_files, model.hidden_size))
        )

    def read_by(self, method: str | None) -> Checkpoint:
        """As a server's --quantization reads its weights."""
        section = self.hf.get("quantization_config")
        if not isinstance(section, Mapping) or (read := as_rows(section, method)) is section:
            return self
        return replace(self, hf={**self.hf, "quantization_config": read})

    @property
    def quantized(self) -> HF:
        """With ModelOpt's own file, which only the loader of the weights reads."""
        section, own = self.quant_file.get("quantization"), self.mapping("quantization_config")
        if self.quantization == "modelopt_fp8" and own.get("exclude_modules") and own.get("ignore") is None:
            raise Unsupported(
                "quantization_config: exclude_modules: SGLang reads ignore there, and no other list"
            )
        if not isinstance(section, Mapping):
            return self.hf
        if self.quantization is None:
            if section.get("quant_algo") == MXFP8:
                raise Unsupported(
                    "hf_quant_config.json alone tells of MXFP8: SGLang takes its weights for plain ones to "
                    "quantize, and what comes of its scales is not known here: config.json has to say it, too"
                )
            return {**self.hf, "quantization_config": {"quant_method": "modelopt", **section}}
        if self.quantization == MIXED and not is_whole(own) and mixed_lists(own) != mixed_lists(section):
            raise ConfigError("config.json and hf_quant_config.json list quantized_layers otherwise")
        return self.hf

    @property
    def model_type(self) -> str:
        return self.string("model_type")

    @property
    def architecture(self) -> str:
        return architecture_of(self.hf)

    def string(self, name: str) -> str:
        value = self.hf.get(name)
        if not isinstance(value, str | None):
            raise ConfigError(f"config.json: {name} is {value!r}: a name is needed")
        return value or ""

    def mapping(self, name: str) -> HF:
        """A section of the whole, empty where there is none."""
        value = self.hf.get(name)
        if not isinstance(value, Mapping | None):
            raise ConfigError(f"config.json: {name} is {value!r}: a section is needed")
        return value or {}

    @property
    def text(self) -> HF:
        """The language model's own section, or the whole."""
        for name in _TEXT_SECTIONS:
            section = self.hf.get(name)
            if isinstance(section, Mapping):
                nested = section.get("text_config")
                return nested if isinstance(nested, Mapping) else section
        return with_usual(self.hf)

    def get(self, name: str, default: Any = None) -> Any:
        """A member of the language model's section, else of the whole."""
        return self.text.get(name, self.hf.get(name, default))

    @property
    def dtype(self) -> str:
        if self.architecture.startswith("Llava") and self.architecture.endswith("ForCausalLM"):
            return "float16"  # whatever it declares: its images are
        if self.architecture == architectures.MUSE_SPARK:  # tells its text what the whole says
            return str(self.hf.get("dtype") or _OWN_CLASS).removeprefix("torch.")
        unsaid = _OWN_CLASS if self.model_type == "beam" else "float32"
        declared = self.get("dtype") or self.get("torch_dtype") or unsaid
        return str(declared).removeprefix("torch.")

    def has(self, name: str) -> bool:
        return self.get(name) is not None

    def section(self, name: str, within_text: bool = True) -> HF:
        """A member that is an object; empty where there is none."""
        found = self.get(name) if within_text else self.hf.get(name)
        if found is None:
            return {}
        if not isinstance(found, Mapping):
            raise ConfigError(f"config.json: {name} is {repr(found)[:60]}, not an object")
        return found

    def names(self, name: str) -> tuple[str, ...]:
        """A member that is a list of strings; empty where there is none."""
        found = self.get(name)
        if found is None:
            return ()
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise ConfigError(f"config.json: {name} is {repr(found)[:60]}, not a list of names")
        return tuple(found)

    def whole(self, name: str, default: int, low: int = 0, within: str | None = None) -> int:
        """A member, or one of the section `within`, that is a whole number."""
        found = self.get(name) if within is None else self.section(within, within_text=False).get(name)
        if found is None:
            return default
        if isinstance(found, bool) or not isinstance(found, (int, float)) or found != found // 1:
            raise ConfigError(f"config.json: {name} is {repr(found)[:60]}, not a whole number")
        if not low <= found <= _LARGEST:
            raise ConfigError(f"config.json: {name} is {repr(found)[:60]}, not between {low} and {_LARGEST}")
        return int(found)

    @property
    def context_length_from(self) -> str:
        told = any(self.text.get(name) is not None for name in _CONTEXT_LENGTHS)
        return "config.json" if told else "what SGLang takes where config.json tells no length"

    @property
    def context_length(self) -> int:
        name = next((name for name in _CONTEXT_LENGTHS if self.text.get(name) is not None), "")
        length = int(self._rope_factor() * self.whole(name, 2048))
        check_size("the context length", length, TOKENS)
        return length

    def _rope_factor(self) -> float:
        """How far positions are stretched, where the length that is told is not the stretched one."""
        name = "rope_scaling" if self.text.get("rope_scaling") not in (None, False) else "rope_parameters"
        scaling = self.section(name)
        kind = scaling.get("rope_type", scaling.get("type"))
        if kind in _TELL_THE_STRETCHED or "original_max_position_embeddings" in scaling:
            return 1
        factor = scaling.get("factor", 1)
        if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 0 < factor <= _LARGEST:
            raise ConfigError(f"config.json: {name} has factor {repr(factor)[:60]}, not a number above 0")
        return factor

    @property
    def has_attention_sinks(self) -> bool:
        if self.architecture in architectures.SINKS:
            return True
        if self.architecture in architectures.MIMO_V2:
            return bool(self.get("add_swa_attention_sink_bias") or self.get("add_full_attention_sink_bias"))
        return self.learns_sinks

    @property
    def learns_sinks(self) -> bool:
        """Of sparse attention; where Hunyuan 4's file does not say, its class does: srt/configs/hy_v4.py."""
        return bool(self.get("learnable_sink", self.hf.get("model_type") == "hy_v4"))

    @property
    def has_wide_keys(self) -> bool:
        """A key's row differs in width from a value's."""
        keys, values = self.whole("head_dim", 0), self.whole("v_head_dim", 0)
        return bool(keys and values and keys != values)

    @property
    def quantization(self) -> str | None:
        return declared_quantization(self.hf)
