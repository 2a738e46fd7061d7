"""Which matrices a quantized checkpoint keeps plain: names are matched as SGLang matches them.

srt/layers/quantization: utils.py's is_layer_skipped and modelopt_quant.py's is_layer_excluded, since 0.5.12.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from runtime.server.errors import ConfigError

# What SGLang runs as one, under its name for it.
_FUSED = {
    ("q_proj", "k_proj", "v_proj"): "qkv_proj",
    ("gate_proj", "up_proj"): "gate_up_proj",
    ("q_a_proj", "kv_a_proj_with_mqa"): "fused_qkv_a_proj_with_mqa",
}
# ModelOpt's lists name these of one layer, and SGLang takes them for every layer's.
_IN_EVERY_LAYER = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj")
_KEYS = {
    "fp8": ("ignored_layers", "modules_to_not_convert"),
    "modelopt_fp8": ("ignore", "exclude_modules"),
    "modelopt_fp4": ("ignore", "modules_to_not_convert", "exclude_modules"),
}
_NOT_TOLD_APART = frozenset("+?[](){}^$|\\")
_MLPS = ("mlp", "mlp.shared_experts", "mlp.shared_expert")
_PROBES = (
    *(f"self_attn.{one}_proj" for one in ("q", "k", "v", "o", "q_a", "q_b", "kv_b")),
    *("self_attn.kv_a_proj_with_mqa", "self_attn.indexer.wq_b"),
    *(f"{mlp}.{one}_proj" for mlp in _MLPS for one in ("gate", "up", "down")),
)
_RUN_AS_ONE = tuple(
    (stem, tails) for tails in _FUSED for stem in (_MLPS if "up_proj" in tails else ("self_attn",))
)


@dataclass(frozen=True, slots=True)
class Excluded:
    """`patterns` have a `*`, which only ModelOpt's may; `tails` are of `_IN_EVERY_LAYER`."""

    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    tails: tuple[str, ...] = ()
    by_modelopt: bool = False

    def linear(self, parts: Sequence[str]) -> bool:
        """Of matrices that are run as one: SGLang's server ends where only some of them are named."""
        fused = _fused_name(parts)
        verdicts = {self._names(part) or (fused is None and self._excludes(part)) for part in parts}
        if len(verdicts) > 1:
            raise ConfigError(f"quantization_config: of {', '.join(parts)} only some are excluded")
        return verdicts.pop() or (fused is not None and self._excludes(fused))

    def experts(self, name: str) -> bool:
        if self.by_modelopt:
            return self._excludes(name)
        return self._names(name) or any(name in listed for listed in self.names if "experts" in listed)

    def of_layer(self, layer: int) -> tuple[bool, ...]:
        """Equal for layers whose matrices are kept alike."""
        if not (self.names or self.patterns):
            return ()
        modules = (f"model.layers.{layer}.{probe}" for probe in _PROBES)
        return tuple(self._names(module) or self._excludes(module) for module in modules)

    def doubts(self, num_layers: int) -> Iterator[str]:
        """Of what is listed, what this runtime cannot follow or a server ends at."""
        for one in (*self.names, *self.patterns) if self.by_modelopt else ():
            if not _NOT_TOLD_APART.isdisjoint(one):
                yield f"{one[:60]!r} is excluded: only * is told from a name"
        for layer in range(num_layers if self.names else 0):
            for stem, tails in _RUN_AS_ONE:
                modules = [f"model.layers.{layer}.{stem}.{tail}" for tail in tails]
                if len({self._names(module) for module in modules}) > 1:
                    yield f"of {', '.join(modules)} only some are excluded"

    def _names(self, module: str) -> bool:
        """It, a part of its path, or what it lies in."""
        names, steps = _as_set(self.names), module.split(".")
        ends = range(1, len(steps) + 1)
        return any(".".join(steps[start:end]) in names for end in ends for start in range(end))

    def _excludes(self, module: str) -> bool:
        if not self.by_modelopt:
            return False
        steps = module.split(".")
        if any(tail in steps[-1] for tail in self.tails) or not _as_set(self.names).isdisjoint(
            (module, *steps)
        ):
            return True
        return any(_matches(pattern, one) for pattern in self.patterns for one in (module, *steps))


NOTHING = Excluded()


def excluded_of(section: Mapping[str, Any], method: str | None) -> Excluded:
    """`section` is the checkpoint's quantization_config."""
    key = next((key for key in _KEYS.get(method or "", ()) if section.get(key) is not None), None)
    if key is None:
        return NOTHING
    listed = section[key]
    if not isinstance(listed, (list, tuple)) or not all(isinstance(one, str) for one in listed):
        raise ConfigError(f"quantization_config: {key} is {repr(listed)[:60]}: a list of modules is needed")
    if method == "fp8":
        stems = {one.rstrip(".").removeprefix("model.") for one in listed}
        return Excluded(tuple(sorted((*stems, *(f"model.{one}" for one in stems)))))
    last_steps = {one.rpartition(".")[2] for one in listed}
    return Excluded(
        names=tuple(one.rstrip(".") for one in listed if "*" not in one),
        patterns=tuple(one for one in listed if "*" in one),
        tails=tuple(tail for tail in _IN_EVERY_LAYER if tail in last_steps),
        by_modelopt=True,
    )


@lru_cache(maxsize=8)
def _as_set(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(names)


def _fused_name(parts: Sequence[str]) -> str | None:
    stem, tails = parts[0].rpartition(".")[0], tuple(part.rpartition(".")[2] for part in parts)
    return f"{stem}.{_FUSED[tails]}" if tails in _FUSED else None


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
