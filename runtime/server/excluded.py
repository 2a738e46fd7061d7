"""Which matrices a quantized checkpoint keeps plain: names are matched as SGLang matches them.

srt/layers/quantization, since 0.5.12: "paths" as utils.py's is_layer_skipped, "modelopt" besides that as
modelopt_quant.py's is_layer_excluded, "anywhere" as awq.py, "ends" as compressed_tensors/utils.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from runtime.server.errors import ConfigError
from runtime.server.packed import GATE_UP, LATENTS, QKV
from runtime.server.patterns import Patterns

# What SGLang runs as one, under its name for it.
_FUSED = {
    ("q_proj", "k_proj", "v_proj"): QKV,
    ("gate_proj", "up_proj"): GATE_UP,
    ("q_a_proj", "kv_a_proj_with_mqa"): LATENTS,
}
# ModelOpt's lists name these of one layer, and SGLang takes them for every layer's.
_IN_EVERY_LAYER = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj")
_KEYS = {
    "fp8": ("ignored_layers", "modules_to_not_convert"),
    "mxfp8": ("ignored_layers", "modules_to_not_convert"),
    "modelopt_fp8": ("ignore", "exclude_modules"),
    "modelopt_fp4": ("ignore", "modules_to_not_convert", "exclude_modules"),
    "modelopt_mixed": ("ignore", "exclude_modules"),
    "awq": ("modules_to_not_convert",),
    "compressed-tensors": ("ignore",),
    "w8a8_int8": ("ignore",),
}
Way = Literal["paths", "modelopt", "anywhere", "ends"]
_WAYS: dict[str, Way] = {
    "awq": "anywhere",
    "compressed-tensors": "ends",
    "w8a8_int8": "ends",
    **dict.fromkeys(("modelopt_fp8", "modelopt_fp4", "modelopt_mixed"), "modelopt"),
}
_EXPRESSION = "re:"
_NOT_TOLD_APART = frozenset("+?[](){}^$|\\")
_MLPS = ("mlp", "mlp.shared_experts", "mlp.shared_expert", "share_expert")
_RECURRENT = ("in_proj_qkvz", "in_proj_qkv", "in_proj_z", "in_proj_ba", "in_proj_a", "in_proj_b", "out_proj")
_MIXERS = ("in_proj", "out_proj", "up_proj", "down_proj", "q_proj", "o_proj", "shared_experts.up_proj")
PROBES = (
    *(f"self_attn.{one}_proj" for one in ("q", "k", "v", "o", "q_a", "q_b", "kv_b")),
    *("self_attn.kv_a_proj_with_mqa", "self_attn.indexer.wq_b"),
    *("attention.query_key_value", "attention.dense"),
    *(f"{mixer}.{one}_proj" for mixer in ("mamba", "conv") for one in ("in", "out")),
    *("shared_mlp.input_linear", "shared_mlp.output_linear"),
    *(f"{mlp}.{one}_proj" for mlp in _MLPS for one in ("gate", "up", "down")),
    *(f"linear_attn.{one}" for one in _RECURRENT),
    *(f"mixer.{one}" for one in _MIXERS),
)
RUN_AS_ONE = tuple(
    (stem, tails) for tails in _FUSED for stem in (_MLPS if "up_proj" in tails else ("self_attn",))
)


@dataclass(frozen=True, slots=True)
class Excluded:
    """`patterns` are ModelOpt's, with a `*`, or expressions; `tails` are of `_IN_EVERY_LAYER`; `unpacks`:
    what SGLang's class looks for under the names of its parts, where that follows from the class."""

    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    tails: tuple[str, ...] = ()
    way: Way = "paths"
    unpacks: tuple[str, ...] = (QKV, GATE_UP, LATENTS)

    def __bool__(self) -> bool:
        return bool(self.names or self.patterns)

    def linear(self, parts: Sequence[str]) -> bool:
        """Of matrices that are run as one: SGLang's server ends where only some of them are named."""
        fused = fused_name(parts)
        if self.way == "anywhere":
            return self.one(fused) if fused is not None else all(self.one(part) for part in parts)
        if self.way == "ends" and fused is not None:
            return self._whole(fused, parts)
        modelopts = self.way == "modelopt" and fused is None
        verdicts = {self._names(part) or (modelopts and self._excludes(part)) for part in parts}
        return _agreed(verdicts, parts) or (fused is not None and self._excludes(fused))

    def _whole(self, fused: str, parts: Sequence[str]) -> bool:
        """A list that has its own name is written for a server; others mean what a file has in parts."""
        if fused in self.names:
            return True
        stored = _agreed({self._names(part) for part in parts}, parts)
        unpacked = fused.rpartition(".")[2] in self.unpacks
        if unpacked or stored == self._names(fused) or _is_end_of(self.names, fused):
            return stored or (not unpacked and self._names(fused))
        raise ConfigError(f"quantization_config: {stored_otherwise(parts[0], is_plain=stored)}")

    def experts(self, name: str) -> bool:
        if self.way == "modelopt":
            return self._excludes(name)
        if self.way == "anywhere":
            return self._names(name)
        if self.way == "ends":
            parts = expert_parts(name)
            return _agreed({self._names(part) for part in parts}, parts)
        return self._names(name) or any(name in listed for listed in self.names if "experts" in listed)

    def one(self, module: str) -> bool:
        """Of a module by itself."""
        return self._names(module) or self._excludes(module)

    def of_layer(self, layer: int) -> tuple[bool, ...]:
        """Equal for layers whose matrices are kept alike."""
        return tuple(self.one(f"model.layers.{layer}.{probe}") for probe in PROBES) if self else ()

    def doubts(self, num_layers: int) -> Iterator[str]:
        """Of what is listed, what this runtime cannot follow or a server ends at."""
        for one in (*self.names, *self.patterns) if self.way == "modelopt" else ():
            if not _NOT_TOLD_APART.isdisjoint(one):
                yield f"{one[:60]!r} is excluded: only * is told from a name"
        for layer in range(num_layers if self and self.way != "anywhere" else 0):
            for stem, tails in RUN_AS_ONE:
                try:
                    self.linear([f"model.layers.{layer}.{stem}.{tail}" for tail in tails])
                except ConfigError as error:
                    yield error.message.removeprefix("quantization_config: ")

    def _names(self, module: str) -> bool:
        if self.way == "anywhere":
            return any(name in module for name in self.names)
        if self.way == "ends":
            return _is_end_of(self.names, module) or _expressions(self.patterns).first(module) is not None
        if not self.names:
            return False
        # It, a part of its path, or what it lies in.
        names, steps = _as_set(self.names), module.split(".")
        ends = range(1, len(steps) + 1)
        return any(".".join(steps[start:end]) in names for end in ends for start in range(end))

    def _excludes(self, module: str) -> bool:
        if self.way != "modelopt":
            return False
        steps = module.split(".")
        if any(tail in steps[-1] for tail in self.tails) or not _as_set(self.names).isdisjoint(
            (module, *steps)
        ):
            return True
        return any(_matches(pattern, one) for pattern in self.patterns for one in (module, *steps))


NOTHING = Excluded()


def _agreed(verdicts: set[bool], parts: Sequence[str]) -> bool:
    if len(verdicts) > 1:
        raise ConfigError(f"quantization_config: of {', '.join(parts)} only some are excluded")
    return verdicts.pop()


def excluded_of(section: Mapping[str, Any], method: str | None) -> Excluded:
    """`section` is the checkpoint's quantization_config."""
    key = next((key for key in _KEYS.get(method or "", ()) if section.get(key) is not None), None)
    if key is None:
        return NOTHING
    listed = section[key]
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise ConfigError(f"quantization_config: {key} is {repr(listed)[:60]}: a list of modules is needed")
    listed = tuple(dict.fromkeys(listed))
    way = _WAYS.get(method or "", "paths")
    if way == "paths":
        stems = {one.rstrip(".").removeprefix("model.") for one in listed}
        return Excluded(tuple(sorted((*stems, *(f"model.{one}" for one in stems)))))
    if way == "anywhere":
        return Excluded(names=tuple(listed), way=way)
    if way == "ends":
        expressions = tuple(one.removeprefix(_EXPRESSION) for one in listed if one.startswith(_EXPRESSION))
        _expressions(expressions)
        return Excluded(tuple(one for one in listed if not one.startswith(_EXPRESSION)), expressions, way=way)
    last_steps = {one.rpartition(".")[2] for one in listed}
    return Excluded(
        names=tuple(one.rstrip(".") for one in listed if "*" not in one),
        patterns=tuple(one for one in listed if "*" in one),
        tails=tuple(tail for tail in _IN_EVERY_LAYER if tail in last_steps),
        way=way,
    )


def stored_otherwise(name: str, is_plain: bool) -> str:
    told = "plain" if is_plain else "quantized"
    return f"{name[:80]} is {told} in the file, and not so in SGLang's class"


def expert_parts(experts: str) -> list[str]:
    return [f"{experts}.0.{one}_proj" for one in ("gate", "up", "down")]


def fused_name(parts: Sequence[str]) -> str | None:
    stem, tails = parts[0].rpartition(".")[0], tuple(part.rpartition(".")[2] for part in parts)
    return f"{stem}.{_FUSED[tails]}" if tails in _FUSED else None


@lru_cache(maxsize=8)
def _as_set(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(names)


@lru_cache(maxsize=32)
def _expressions(patterns: tuple[str, ...]) -> Patterns:
    return Patterns(patterns)


def _is_end_of(names: tuple[str, ...], module: str) -> bool:
    known, steps = _as_set(names), module.split(".")
    return any(".".join(steps[start:]) in known for start in range(len(steps)))


def _matches(pattern: str, name: str) -> bool:
    first, *between, last = pattern.split("*")
    if not name.startswith(first) or not name.endswith(last):
        return False
    at, end = len(first), len(name) - len(last)
    for piece in between:
        at = name.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return at <= end
