"""How a checkpoint stores its matrices: the quantization of each by its name, or None for plain."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Literal

from runtime.server.errors import ConfigError, Unsupported

HF = Mapping[str, Any]
MODELOPT = {"FP8": "modelopt_fp8", "NVFP4": "modelopt_fp4", "NVFP4_AWQ": "modelopt_fp4"}
_KEYS = ("ignored_layers", "modules_to_not_convert", "ignore", "exclude_modules")
_HEAD = "lm_head"


@dataclass(frozen=True, slots=True)
class Excluded:
    """Names of unquantized matrices and of modules that contain them; names of ModelOpt may contain `*`."""

    names: tuple[str, ...] = ()

    def linear(self, parts: Sequence[str]) -> bool:
        """Whether matrices that run as one are excluded. A server exits if only some of them are."""
        verdicts = {self.one(part) for part in parts}
        if len(verdicts) > 1:
            raise ConfigError(
                f"quantization_config: one of {', '.join(parts)} is excluded, another is not: they run as one"
            )
        return verdicts.pop()

    def one(self, module: str) -> bool:
        return _is_named(self.names, module)

    def below(self, stem: str) -> tuple[str, ...]:
        """Return the excluded names below `stem`, sorted."""
        return tuple(sorted({name.removeprefix(stem) for name in self.names if name.startswith(f"{stem}.")}))


NOTHING = Excluded()


@lru_cache(maxsize=1 << 14)
def _is_named(names: tuple[str, ...], module: str) -> bool:
    """Whether the module, a parent of it, or a matching pattern is in `names`."""
    for name in names:
        if "*" in name:
            if fnmatchcase(module, name) or fnmatchcase(module, f"{name}.*"):
                return True
        elif module == name or module.startswith(f"{name}."):
            return True
    return False


@dataclass(frozen=True, slots=True)
class Kind:
    """A quantization. `per` names what has a scale. A static one has scales of activations, too."""

    name: Literal["fp8", "nvfp4", "mxfp4"]
    per: Literal["tensor", "block", "group"] = "group"
    block: tuple[int, int] = (128, 128)
    group: int = 16
    is_static: bool = False


@dataclass(frozen=True, slots=True)
class Quantized:
    method: str | None = None  # under SGLang's name
    linear: Kind | None = None
    experts: Kind | None = None
    excluded: Excluded = NOTHING

    @property
    def block(self) -> tuple[int, int] | None:
        """Return the block size of fp8 in blocks."""
        kind = self.linear
        return kind.block if kind is not None and kind.per == "block" else None

    def of_linear(self, parts: Sequence[str]) -> Kind | None:
        """Return the quantization of matrices that run as one."""
        return None if self.linear is None or self.excluded.linear(parts) else self.linear

    def of_experts(self, name: str) -> Kind | None:
        return None if self.experts is None or self.excluded.one(name) else self.experts


UNQUANTIZED = Quantized()


def method_of(section: object) -> str | None:
    """Return SGLang's name of the method in a `quantization_config` or in ModelOpt's own file."""
    if section is None:
        return None
    if not isinstance(section, Mapping):
        raise ConfigError(f"config.json: quantization_config is {section!r:.60}, not an object")
    method = section.get("quant_method")
    if method in (None, "modelopt"):
        nested = section.get("quantization")
        told = (nested if isinstance(nested, Mapping) else section).get("quant_algo")
        algorithm = str(told or "").upper()
        if algorithm not in MODELOPT and section:
            raise Unsupported(
                f"quantization {method or 'of no name'} {algorithm[:40]}: a server answers for it"
            )
        return MODELOPT.get(algorithm)
    if not isinstance(method, str):
        raise ConfigError(
            f"config.json: quantization_config: quant_method is {method!r:.60}: a name is needed"
        )
    if method.lower() not in _READERS:
        raise Unsupported(
            f"quantization {method!r:.60} is not one of the core's ({', '.join(_READERS)}): a server answers "
            "for it"
        )
    return method.lower()


def weights_of(hf: HF) -> Quantized:
    """Return which of a checkpoint's matrices are quantized, and how."""
    method = method_of(hf.get("quantization_config"))
    if method is None:
        return UNQUANTIZED
    section = hf["quantization_config"]
    kind = _READERS[method](section)
    if method == "mxfp4":
        return Quantized(method, experts=kind)
    return Quantized(method, kind, kind, excluded_of(section))


def excluded_of(section: Mapping[str, Any]) -> Excluded:
    told = next((section[key] for key in _KEYS if section.get(key) is not None), ())
    if not isinstance(told, (list, tuple)) or not all(isinstance(one, str) for one in told):
        raise ConfigError("quantization_config: what is not quantized is no list of names")
    return Excluded(tuple(name for name in told if name != _HEAD))


def _fp8(section: HF) -> Kind:
    told = section.get("weight_block_size")
    if told is None:
        return Kind("fp8", "tensor", is_static=section.get("activation_scheme") == "static")
    if not isinstance(told, list) or len(told) != 2 or not all(type(one) is int and one > 0 for one in told):
        raise ConfigError(f"quantization_config: weight_block_size is {told!r:.60}: two sizes are needed")
    return Kind("fp8", "block", (told[0], told[1]))


def _nvfp4(section: HF) -> Kind:
    groups = section.get("config_groups")
    first: Any = next(iter(groups.values()), {}) if isinstance(groups, Mapping) else {}
    weights = first.get("weights") if isinstance(first, Mapping) else {}
    told = section.get("group_size", weights.get("group_size") if isinstance(weights, Mapping) else None)
    if told is not None and (type(told) is not int or not 0 < told < 1 << 16):
        raise ConfigError(f"quantization_config: group_size is {told!r:.60}: a size is needed")
    return Kind("nvfp4", group=told or 16)


_READERS: Mapping[str, Callable[[HF], Kind]] = {
    "fp8": _fp8,
    "modelopt_fp8": lambda section: Kind("fp8", "tensor", is_static=True),
    "modelopt_fp4": _nvfp4,
    "mxfp4": lambda section: Kind("mxfp4", group=32),
}
