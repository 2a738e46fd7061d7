"""One tensor of a multimodal model's encoder, and how ranks hold it: SGLang's layers by their names there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from runtime.server.backends import Number
from runtime.server.bounds import LAYERS, Bound, check_size
from runtime.server.errors import ConfigError

Group = Literal["tp", "attn_tp"]
EAR = "audio_tower"
_VALUES = Bound(0, 1 << 40)

QuantizesText = Literal["whoever says so", "its file"] | None


@dataclass(frozen=True, slots=True)
class EncoderWeight:
    """`split`: the dimension that the ranks of `group` share, in `units` of which none is divided. `padded`:
    one that each has whole, with what the others pad it to."""

    name: str
    shape: tuple[int, ...]
    split: int | None = None
    group: Group = "tp"
    units: int = 0  # 0: the dimension's own
    pads: bool = False  # to as many units on every rank
    for_all: bool = False  # of TP's, whatever group shares them
    padded: int | None = None
    layers: int = 1  # with one each
    on_first_stage_alone: bool = False
    in_fp32: bool = False  # whatever the model is in
    in_fp8: bool = False
    since: Number | None = None  # a release, where those before it have none
    grouped_since: Number | None = None  # where TP's ranks share it in those before
    cut_since: Number | None = None  # by SGLang, which then leaves out some of its rows or columns

    def __post_init__(self) -> None:
        check_size(f"config.json: layers of the encoder's {self.name}", self.layers, LAYERS)
        check_size(f"config.json: values of the encoder's {self.name}", prod(self.shape), _VALUES)

    @property
    def is_heard(self) -> bool:
        """Of what it hears with, but what joins that to the text."""
        return self.name.startswith(f"{EAR}.")

    def of_rank(self, ranks: int, of_all: int = 1) -> tuple[int, ...]:
        """`ranks` are its group's."""
        along = self.padded if self.split is None else self.split
        others = max(1, of_all // ranks) if self.for_all else 1  # groups
        if along is None or ranks * others == 1:
            return self.shape
        whole = self.shape[along]
        units = self.units or whole
        if units % ranks and not self.pads:
            raise ConfigError(f"the encoder's {self.name}: {units} cannot be split over {ranks} ranks")
        mine = whole // units * -(-units // (ranks * others)) * others * (1 if self.padded is None else ranks)
        return (*self.shape[:along], mine, *self.shape[along + 1 :])

    def of_release(self, release: Number) -> EncoderWeight:
        is_later = self.grouped_since is not None and release < self.grouped_since
        return replace(self, group="tp") if is_later else self

    def on_each(self) -> EncoderWeight:
        return replace(
            self, split=None, padded=self.split if self.pads and self.split is not None else self.padded
        )


@dataclass(frozen=True, slots=True)
class Encoder:
    """`may_be_whole`: on every rank, by --mm-enable-dp-encoder. `is_quantized` with the rest of the model.
    `beside` is what it has of weights that its config.json does not tell. `hides_text`: its class has its
    language model where SGLang does not look for layers to capture. `reads_another`: its tower is another
    checkpoint's, and comes with the files of this one. `is_plain_alone`: what its class makes of quantized
    weights, drafts and adapters is not known here. `quantizes_text`: it alone has a method of these,
    or where a file says so, as the others are plain there. `is_split_later`: since 0.5.17 alone.
    `is_made_twice`: its class makes its language model and what it sees with, and both once more, in the
    place of the first."""

    weights: tuple[EncoderWeight, ...]
    may_be_whole: bool = False
    is_quantized: bool = False
    beside: tuple[str, ...] = ()
    hides_text: bool = False
    reads_another: bool = False
    is_plain_alone: bool = False
    quantizes_text: QuantizesText = None
    is_split_later: bool = False
    is_made_twice: bool = False

    @property
    def hears(self) -> bool:
        return any(weight.is_heard for weight in self.weights)

    def is_cut(self, release: Number) -> bool:
        return any(one.cut_since is not None and release >= one.cut_since for one in self.weights)

    def of_release(self, release: Number) -> Encoder:
        known = (one for one in self.weights if one.since is None or release >= one.since)
        return replace(self, weights=tuple(one.of_release(release) for one in known))

    def whole(self) -> Encoder:
        if not self.may_be_whole:
            return self
        return replace(self, weights=tuple(weight.on_each() for weight in self.weights))


Weights = Iterator[EncoderWeight]
_VOCAB_PADDING = 64


def whole(name: str, *shape: int) -> Weights:
    yield EncoderWeight(name, shape)


def column(
    name: str, rows: int, width: int, bias: bool = True, units: int = 0, pads: bool = False
) -> Weights:
    yield EncoderWeight(f"{name}.weight", (rows, width), 0, units=units, pads=pads)
    if bias:
        yield EncoderWeight(f"{name}.bias", (rows,), 0, units=units, pads=pads)


def vocabulary(name: str, rows: int, width: int) -> Weights:
    """An embedding that is split by its rows, padded as every one of SGLang's is."""
    yield from column(name, -(-rows // _VOCAB_PADDING) * _VOCAB_PADDING, width, bias=False)


def row(name: str, rows: int, width: int, bias: bool = True, units: int = 0, pads: bool = False) -> Weights:
    yield EncoderWeight(f"{name}.weight", (rows, width), 1, units=units, pads=pads)
    if bias:
        yield EncoderWeight(f"{name}.bias", (rows,))


def linear(name: str, rows: int, width: int, bias: bool = True) -> Weights:
    """Whole on every rank."""
    yield from whole(f"{name}.weight", rows, width)
    if bias:
        yield from whole(f"{name}.bias", rows)


def layer_norm(name: str, width: int) -> Weights:
    yield from whole(f"{name}.weight", width)
    yield from whole(f"{name}.bias", width)


def in_fp32(weights: Iterable[EncoderWeight]) -> Weights:
    """srt/layers/layernorm.py, LayerNorm, which is not torch's."""
    return (replace(one, in_fp32=True) for one in weights)


def rms_norm(name: str, width: int) -> Weights:
    yield from whole(f"{name}.weight", width)


def attention(
    width: int,
    heads: int,
    qkv_bias: bool = True,
    out_bias: bool = True,
    pads: bool = False,
) -> Weights:
    """VisionAttention (srt/layers/attention/vision.py)."""
    all_heads = heads * (width // heads)
    if not all_heads:
        raise ConfigError(f"config.json: an encoder {width} wide is narrower than its {heads} heads")
    parts = (
        column("attn.qkv_proj", 3 * all_heads, width, qkv_bias, heads, pads),
        row("attn.proj", width, all_heads, out_bias, heads, pads),
    )
    for part in parts:
        yield from over_attention_ranks(part)


def block(width: int, heads: int, inner: int, norms: tuple[str, str] = ("norm1", "norm2")) -> Weights:
    """Two norms, attention and an MLP of two matrices, with all biases."""
    for name in norms:
        yield from layer_norm(name, width)
    yield from attention(width, heads)
    yield from column("mlp.fc1", inner, width)
    yield from row("mlp.fc2", width, inner)


def padded_for_all(weights: Iterable[EncoderWeight]) -> Weights:
    return (replace(one, for_all=one.pads) for one in weights)


def over_attention_ranks(weights: Iterable[EncoderWeight], since: Number | None = None) -> Weights:
    return (replace(one, group="attn_tp", grouped_since=since) for one in weights)


def layers(name: str, count: int, weights: Iterable[EncoderWeight]) -> Weights:
    return (replace(one, name=f"{name}.{one.name}", layers=count) for one in weights)


def named(tower: str, weights: Iterable[EncoderWeight]) -> Weights:
    return (replace(one, name=f"{tower}.{one.name}") for one in weights)
