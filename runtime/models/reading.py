"""Reads a config.json into a family's dataclass, and checks the type of each field."""

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from types import NoneType
from typing import Any, ClassVar, TypeVar, cast, get_args, get_type_hints

from runtime.server.bounds import MODEL, WIDTH, check_size
from runtime.server.errors import ConfigError, Unsupported

HF = Mapping[str, Any]
Members = Mapping[str, tuple[Any, ...]]
_LARGEST = 1e15


def members(**of: tuple[Any, ...]) -> Members:
    return of


@dataclass(frozen=True, kw_only=True)
class Config:
    """The fields that every decoder's config.json has. Defaults here are used for fields that the file omits.

    `gaps` collects what this runtime does not compute; sizes and keys do not depend on it.
    """

    # The values of a member that are computed, if it is not missing or null.
    ONLY: ClassVar[Members] = members()  # Python 3.10 reads no plain one
    # Other spellings of a field, which have precedence.
    SPELLED: ClassVar[Members] = members()

    hf: HF
    gaps: list[str]
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    intermediate_size: int
    max_position_embeddings: int
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = False
    attention_bias: bool = False

    @property
    def kv_heads(self) -> int:
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def head_width(self) -> int:
        width = self.head_dim or self.hidden_size // self.num_attention_heads
        if not width:
            raise ConfigError(f"config.json: hidden_size {self.hidden_size} is less than its heads")
        return width

    def cannot(self, why: str) -> None:
        self.gaps.append(f"config.json: {why}")

    def section(self, name: str) -> HF:
        value = self.hf.get(name)
        if not isinstance(value, Mapping | None):
            raise ConfigError(f"config.json: {name} is {shown(value)}: an object is needed")
        return value or {}

    def each_layer(self, name: str, kinds: Mapping[str, str]) -> list[str] | None:
        """Return the kind of each layer in our words, or None if the file has no such list."""
        listed, layers = self.hf.get(name), self.num_hidden_layers
        if listed is None:
            return None
        if not isinstance(listed, list) or len(listed) < layers:
            raise ConfigError(f"config.json: {name} is {shown(listed)}: a list of {layers} names is needed")
        for word in listed:
            if not isinstance(word, str) or word not in kinds:
                raise Unsupported(f"config.json: {name} names {shown(word)}: here are {', '.join(kinds)}")
        return [kinds[word] for word in listed[:layers]]

    def counted(self, name: str, kinds: Mapping[str, str], ours: list[str], by: str) -> list[str]:
        """Return the listed kinds. A list other than `ours` is refused: SGLang reads only the field `by`."""
        told = self.each_layer(name, kinds)
        if told not in (None, ours):
            self.cannot(f"{name} are not those of {by}: SGLang goes by that alone")
        return told or ours


Read = TypeVar("Read", bound=Config)


def read(kind: type[Read], hf: HF) -> Read:
    found, hints = dict[str, Any](), _hints(cast(Any, kind))
    for one in fields(kind):
        names = (*kind.SPELLED.get(one.name, ()), one.name)
        name = next((name for name in names if hf.get(name) is not None), one.name)
        if name in hf:
            found[one.name] = _checked(name, hints[one.name], hf[name])
        elif one.default is MISSING and one.name not in ("hf", "gaps"):
            raise ConfigError(f"config.json: {one.name} is missing")
    config = kind(hf=hf, gaps=[], **found)
    only: Mapping[str, tuple[Any, ...]] = kind.ONLY
    for name, served in only.items():
        value = hf.get(name)
        if not any(value == other and type(value) is type(other) for other in (None, *served)):
            known = " or ".join(map(shown, served)) or "nothing"
            config.cannot(f"{name} is {shown(value)}: this runtime computes {known}")
    return config


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _checked(name: str, hint: Any, value: Any) -> Any:
    kinds = get_args(hint) or (hint,)
    if value is None and (NoneType in kinds or bool in kinds):
        return None if NoneType in kinds else False
    if int in kinds:
        bound = MODEL.get(name, WIDTH)
        if type(value) is not int or value < bound.least:
            raise ConfigError(f"config.json: {name} is {shown(value)}: a positive whole number is needed")
        check_size(f"config.json: {name}", value, bound)
    elif float in kinds and checked_number(name, value) <= 0:
        raise ConfigError(f"config.json: {name} is {value}: it must be above 0")
    elif bool in kinds and not isinstance(value, bool):
        raise ConfigError(f"config.json: {name} is {shown(value)}: true or false is needed")
    elif list in kinds and not isinstance(value, list):
        raise ConfigError(f"config.json: {name} is {shown(value)}: a list is needed")
    return value


def checked_number(name: str, value: Any) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not abs(value) < _LARGEST or math.isnan(value):
        raise ConfigError(f"config.json: {name} is {shown(value)}: a number is needed")
    return value


def shown(value: Any) -> str:
    return repr(value)[:60] if not isinstance(value, int) or abs(value) < 10**20 else "a very large number"
