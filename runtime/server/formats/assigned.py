"""Which kind of quantization each matrix of a checkpoint has, by its name; None is plain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from runtime.server.errors import ConfigError
from runtime.server.excluded import (
    NOTHING,
    PROBES,
    RUN_AS_ONE,
    Excluded,
    expert_parts,
    fused_name,
    stored_otherwise,
)
from runtime.server.formats.kinds import Kind
from runtime.server.patterns import Patterns

# Beside those of two names that others have: srt/models/qwen3_5.py
_UNPACKED = ("in_proj_qkv", "in_proj_z"), ("in_proj_b", "in_proj_a")


@dataclass(frozen=True)
class Quantized:
    """`linear`, `experts` and `head` are of what nothing below names.

    `expressions` and `names` have a kind each, and the first that matches counts; `covers_experts`: also for
    experts, which otherwise are all alike. `strict`: a matrix that nothing names ends the server.
    `every_linear`: of each that is no expert's, whatever is listed. `own_formats`: groups have some.
    `by_any_part`: what is run as one is of the kind of those parts that are named, and experts of theirs.
    """

    linear: Kind | None = None
    experts: Kind | None = None
    head: Kind | None = None
    excluded: Excluded = NOTHING
    expressions: tuple[str, ...] = ()
    of_expressions: tuple[Kind | None, ...] = ()
    names: tuple[str, ...] = ()
    of_names: tuple[Kind | None, ...] = ()
    covers_experts: bool = False
    strict: bool = False
    every_linear: Kind | None = None
    own_formats: bool = False
    by_any_part: bool = False

    def of_linear(self, parts: Sequence[str]) -> Kind | None:
        """Of matrices that are run as one."""
        if self.every_linear is not None:
            return self.every_linear
        kind = self._linear(parts)
        if kind is not None and kind.name == "mxfp4":
            raise ConfigError(f"quantization_config: SGLang has nothing in mxfp4 but experts, not {parts[0]}")
        return kind

    def _linear(self, parts: Sequence[str]) -> Kind | None:
        if self.excluded.linear(parts):
            return None
        fused = fused_name(parts)
        if self.by_any_part and len(set(parts)) > 1:
            return self._of_any(fused, parts)
        found = self._told(fused or parts[0])
        if found is None and self._asks_parts(fused, parts):
            found = self._agreed(parts)
        if found is not None:
            return found[0]
        if self.strict and self.linear is None:
            raise ConfigError(f"quantization_config: no target for {fused or parts[0]}: SGLang ends at it")
        return self.linear

    def _asks_parts(self, fused: str | None, parts: Sequence[str]) -> bool:
        """find_matched_target of compressed_tensors/utils.py comes to them last, where a class unpacks it."""
        if fused is None or not self.strict:
            return fused is not None or len(parts) > 1
        return self.linear is None and fused.rpartition(".")[2] in self.excluded.unpacks

    def of_experts(self, name: str) -> Kind | None:
        kind = self._experts(name)
        if self.strict and kind != self.experts and self.experts is not None and self.experts.name == "mxfp4":
            raise ConfigError(f"quantization_config: SGLang takes all experts for mxfp4, also {name}")
        if kind is not None and kind.linears_only:
            apart = ", of a file in another format" if kind.name == "packed" else ""
            named = f"{kind.name} a {kind.per}{apart}"
            raise ConfigError(f"quantization_config: SGLang has no experts in {named}")
        return kind

    def of_head(self, called: str = "lm_head") -> Kind | None:
        if self.excluded.one(called):
            return None
        found = self._told(called)
        kind = self.head if found is None else found[0]
        if self.strict and kind is not None and (kind.per == "block" or kind.name == "mxfp4"):
            raise ConfigError(f"quantization_config: SGLang has no {called} in {kind.name} a {kind.per}")
        return kind

    def of_layer(self, stem: str) -> tuple[Kind | None, ...]:
        """Equal for layers whose matrices are stored alike; `stem` is the layer's own name."""
        if not (self.excluded or self.expressions or self.names):
            return ()
        if stem not in self._layers:
            self._layers[stem] = self._of_layer(stem)
        return self._layers[stem]

    @cached_property
    def _layers(self) -> dict[str, tuple[Kind | None, ...]]:
        return {}

    def _of_layer(self, stem: str) -> tuple[Kind | None, ...]:
        modules = [f"{stem}.{probe}" for probe in PROBES]
        as_one = [[f"{stem}.{where}.{tail}" for tail in tails] for where, tails in RUN_AS_ONE]
        fused = [name for name in map(fused_name, as_one) if name is not None]
        experts = [f"{stem}.{mlp}.experts" for mlp in ("mlp", "block_sparse_moe", "mixer")]
        return (
            *(self._of_one(module) for module in (*modules, *fused)),
            *(kind for name in experts for kind in self._probed(name)),
        )

    def _probed(self, experts: str) -> tuple[Kind | None, ...]:
        """Of a layer that may have none under that name."""
        if self.strict:
            return tuple(self._of_one(part) for part in expert_parts(experts))
        return (self._experts(experts),)

    def doubts(self, num_layers: int) -> Iterator[str]:
        yield from self.excluded.doubts(num_layers)

    def _experts(self, name: str) -> Kind | None:
        if self.excluded.experts(name):
            return None
        if self.by_any_part:
            return self._within(name)
        found = self._of_experts(name) if self.covers_experts else None
        return self.experts if found is None else found[0]

    def _of_one(self, module: str) -> Kind | None:
        if self.excluded.one(module):
            return None
        found = self._told(module)
        return self.linear if found is None else found[0]

    def _agreed(self, parts: Sequence[str]) -> tuple[Kind | None] | None:
        found = {self._told(part) for part in parts}
        told = {one for one in found if one is not None}
        return _only(told, parts) if len(told) == len(found) else None

    def _of_any(self, fused: str | None, parts: Sequence[str]) -> Kind | None:
        """Where the class unpacks it: others look for the whole alone."""
        whole = None if fused is None else self._told(fused)
        found = {told for told in map(self._told, parts) if told is not None}
        if whole is not None or not found:
            return None if whole is None else whole[0]
        tails = tuple(dict.fromkeys(part.rpartition(".")[2] for part in parts))
        if tails not in _UNPACKED and (fused or "").rpartition(".")[2] not in self.excluded.unpacks:
            raise ConfigError(f"quantization_config: {stored_otherwise(parts[0], is_plain=False)}")
        return _only(found, parts)[0]

    def _within(self, name: str) -> Kind | None:
        """The kind of what lies in it."""
        kinds = self._in_parents.get(name, ())
        if len(kinds) > 1:
            raise ConfigError(f"quantization_config: the experts of {name} are of several kinds")
        return kinds[0] if kinds else None

    @cached_property
    def _in_parents(self) -> dict[str, tuple[Kind | None, ...]]:
        """Of each path, the kinds of all that is named below it."""
        found: dict[str, dict[Kind | None, None]] = {}
        for name, kind in zip(self.names, self.of_names, strict=True):
            steps = name.split(".")
            for end in range(1, len(steps) + 1):
                found.setdefault(".".join(steps[:end]), {})[kind] = None
        return {name: tuple(kinds) for name, kinds in found.items()}

    def _of_experts(self, name: str) -> tuple[Kind | None] | None:
        if self.strict:
            return self._of_parts(expert_parts(name))
        told = self._told(name)
        if told is not None:
            return told
        found = {self._told(part) for part in expert_parts(name)} - {None}
        if len(found) > 1:
            raise ConfigError(f"quantization_config: the experts of {name} are of several kinds")
        return found.pop() if found else None

    def _of_parts(self, names: Sequence[str]) -> tuple[Kind | None]:
        """As get_moe_scheme of compressed_tensors.py comes to them, what no name tells by the class."""
        found = {self._told(name) or (self.experts,) for name in names}
        if found == {(None,)}:
            raise ConfigError(f"quantization_config: no target for {names[0]}: SGLang ends at it")
        return _only(found, names)

    def _told(self, module: str) -> tuple[Kind | None] | None:
        if module in self._kinds:
            return (self._kinds[module],)
        number = self._patterns.first(module) if self.expressions else None
        return None if number is None else (self.of_expressions[number],)

    @cached_property
    def _kinds(self) -> dict[str, Kind | None]:
        return dict(zip(reversed(self.names), reversed(self.of_names), strict=True))

    @cached_property
    def _patterns(self) -> Patterns:
        return Patterns(self.expressions)


def _only(found: set[tuple[Kind | None]], parts: Sequence[str]) -> tuple[Kind | None]:
    if len(found) > 1:
        raise ConfigError(f"quantization_config: {', '.join(parts)} are of several kinds, and run as one")
    return found.pop()


UNQUANTIZED = Quantized()
