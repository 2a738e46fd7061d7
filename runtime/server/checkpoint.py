"""A checkpoint as the server's arguments see it: its config.json, of any family, known or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runtime.server.bounds import TOKENS, check_size
from runtime.server.config import ModelConfig
from runtime.server.errors import ConfigError
from runtime.server.hf_config import model_config

HF = Mapping[str, Any]
_ENDLESS = 1 << 60
# Where a multimodal model's language model is described, in the order SGLang looks.
_TEXT_SECTIONS = ("text_config", "llm_config", "language_config", "thinker_config")
_CONTEXT_LENGTHS = (
    *("max_sequence_length", "seq_length", "max_seq_len", "model_max_length", "max_position_embeddings"),
)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`quant_file` is ModelOpt's hf_quant_config.json, where the folder has one."""

    hf: HF = field(hash=False)
    quant_file: HF = field(default_factory=dict, hash=False)

    def model_config(self) -> ModelConfig:
        """Its layers, of a family that this runtime can build."""
        return model_config(self.quantized)

    @property
    def quantized(self) -> HF:
        """With ModelOpt's own file, which only the loader of the weights reads."""
        section = self.quant_file.get("quantization")
        if self.quantization is not None or not isinstance(section, Mapping):
            return self.hf
        return {**self.hf, "quantization_config": {"quant_method": "modelopt", **section}}

    @property
    def model_type(self) -> str:
        return self.string("model_type")

    @property
    def architecture(self) -> str:
        listed = self.hf.get("architectures")
        return str(listed[0]) if isinstance(listed, (list, tuple)) and listed else ""

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
        return self.hf

    def get(self, name: str, default: Any = None) -> Any:
        """A member of the language model's section, else of the whole."""
        return self.text.get(name, self.hf.get(name, default))

    @property
    def dtype(self) -> str:
        declared = self.get("dtype") or self.get("torch_dtype") or "float32"
        return str(declared).removeprefix("torch.")

    @property
    def context_length(self) -> int:
        scaling = self.text.get("rope_scaling")
        factor: Any = 1
        if isinstance(scaling, Mapping) and scaling.get("rope_type") != "llama3":
            factor = 1 if "original_max_position_embeddings" in scaling else scaling.get("factor", 1)
        found = (self.text[name] for name in _CONTEXT_LENGTHS if self.text.get(name) is not None)
        length = next(found, 2048)
        if not all(type(value) in (int, float) and abs(value) < _ENDLESS for value in (factor, length)):
            raise ConfigError(f"the context length is {str(length)[:60]}, scaled by {str(factor)[:60]}")
        check_size("the context length", int(factor * length), TOKENS)
        return int(factor * length)

    @property
    def is_mla(self) -> bool:
        return bool(self.get("kv_lora_rank"))

    @property
    def is_sparse(self) -> bool:
        """An indexer chooses the keys that attention sees."""
        return self.is_mla and bool(self.get("index_topk"))

    @property
    def has_attention_sinks(self) -> bool:
        return self.model_type == "gpt_oss"

    @property
    def quantization(self) -> str | None:
        """The method that the checkpoint declares, under SGLang's name."""
        section = self.hf.get("quantization_config")
        if not isinstance(section, Mapping):
            return None
        method = section.get("quant_method")
        if method == "modelopt" or (method is None and "quant_algo" in section):
            return _modelopt(str(section.get("quant_algo", "")).upper())
        return None if method is None else str(method)


def _modelopt(algorithm: str) -> str:
    if "FP4" in algorithm:
        return "modelopt_fp4"
    return {"FP8": "modelopt_fp8", "MIXED_PRECISION": "modelopt_mixed"}.get(algorithm, "modelopt")
