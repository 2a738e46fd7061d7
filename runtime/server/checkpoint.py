"""A checkpoint's config.json, of any family, as the choices of a server's arguments read it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runtime.server.bounds import TOKENS, check_size
from runtime.server.errors import ConfigError

HF = Mapping[str, Any]
_CONTEXT_LENGTHS = (
    *("max_sequence_length", "seq_length", "max_seq_len", "model_max_length", "max_position_embeddings"),
)
_LARGEST = 1 << 40
# transformers gives them the length before stretching, if only the same (modeling_rope_utils.py).
_TELL_THE_STRETCHED = ("llama3", "yarn", "longrope")
_DTYPE_ALIASES = {"half": "float16", "float": "float32"}


def architecture_of(hf: HF) -> str:
    """Return the first architecture, which is the one that SGLang uses; empty if the file names none."""
    listed = hf.get("architectures")
    if listed is None:
        return ""
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise ConfigError(f"config.json: architectures is {repr(listed)[:60]}: a list of names is needed")
    return listed[0] if listed else ""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint's files. `quant_file` is ModelOpt's hf_quant_config.json if the folder has one."""

    hf: HF
    quant_file: HF = field(default_factory=dict)

    @property
    def quantized(self) -> HF:
        """Return config.json, completed by ModelOpt's file, which only the loader of the weights reads."""
        section = self.quant_file.get("quantization")
        if isinstance(section, Mapping) and not self.has("quantization_config"):
            return {**self.hf, "quantization_config": {"quant_method": "modelopt", **section}}
        return self.hf

    @property
    def model_type(self) -> str:
        value = self.hf.get("model_type")
        if not isinstance(value, str | None):
            raise ConfigError(f"config.json: model_type is {value!r:.60}: a name is needed")
        return value or ""

    @property
    def dtype(self) -> str:
        declared = str(self.get("dtype") or self.get("torch_dtype") or "float32").removeprefix("torch.")
        return _DTYPE_ALIASES.get(declared, declared)

    def get(self, name: str, default: Any = None) -> Any:
        return self.hf.get(name, default)

    def has(self, name: str) -> bool:
        return self.get(name) is not None

    def section(self, name: str) -> HF:
        """Return a member that is an object; empty if there is none."""
        found = self.get(name)
        if not isinstance(found, Mapping | None):
            raise ConfigError(f"config.json: {name} is {repr(found)[:60]}, not an object")
        return found or {}

    def whole(self, name: str, default: int) -> int:
        """Return a member that is a whole number."""
        found = self.get(name)
        if found is None:
            return default
        if isinstance(found, bool) or not isinstance(found, (int, float)) or found != found // 1:
            raise ConfigError(f"config.json: {name} is {repr(found)[:60]}, not a whole number")
        if not 0 <= found <= _LARGEST:
            raise ConfigError(f"config.json: {name} is {repr(found)[:60]}, not between 0 and {_LARGEST}")
        return int(found)

    @property
    def context_length(self) -> int:
        name = next((name for name in _CONTEXT_LENGTHS if self.has(name)), "")
        length = int(self._rope_factor() * self.whole(name, 2048))
        check_size("the context length", length, TOKENS)
        return length

    def _rope_factor(self) -> float:
        """Return by how much positions are stretched; 1 if the file's length is the stretched one."""
        name = "rope_scaling" if self.get("rope_scaling") not in (None, False) else "rope_parameters"
        scaling = self.section(name)
        kind = scaling.get("rope_type", scaling.get("type"))
        if kind in _TELL_THE_STRETCHED or "original_max_position_embeddings" in scaling:
            return 1
        factor = scaling.get("factor", 1)
        if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 0 < factor <= _LARGEST:
            raise ConfigError(f"config.json: {name} has factor {repr(factor)[:60]}, not a number above 0")
        return factor
