"""A quantization_config as kinds of matrices: one reader a method, under SGLang's names of the methods."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from runtime.server.errors import ConfigError, Unsupported
from runtime.server.excluded import excluded_of
from runtime.server.formats.assigned import UNQUANTIZED, Quantized
from runtime.server.formats.compressed import compressed
from runtime.server.formats.fields import block_of, flag, section_of, text, whole
from runtime.server.formats.kinds import Kind

Section = Mapping[str, Any]
Layers = list[tuple[str, Section]]
_EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.")
_FP8_TENSOR = Kind("fp8", "tensor", is_static=True, widens="modelopt")
_BLOCK_FP8 = ("FP8_PB_WO", "FP8_BLOCK_SCALES")
_IN_FP4 = ("NVFP4", "W4A16_NVFP4")


def quantized_of(section: Section, method: str | None) -> Quantized:
    """`section` is the checkpoint's quantization_config, empty where it has none."""
    if method is None or not section:
        return UNQUANTIZED
    reader = _READERS.get(method.lower().replace("_tensors", "-tensors"))
    if reader is None:
        raise Unsupported(f"quantization_config: how large weights of {method} are is not known here")
    return reader(section)


def _everywhere(section: Section, method: str, kind: Kind, head: Kind | None = None) -> Quantized:
    return Quantized(kind, kind, head, excluded_of(section, method))


def _fp8(section: Section) -> Quantized:
    if str(section.get("store_dtype") or "").lower() == "mxfp4":
        raise Unsupported("quantization_config: store_dtype is mxfp4: experts beside fp8 are not known here")
    static = section.get("activation_scheme") == "static"
    block = block_of(section, "weight_block_size")
    of_tensors = Kind("fp8", "tensor", is_static=static, widens="fp8")
    return _everywhere(section, "fp8", of_tensors if block is None else Kind("fp8", "block", block))


def _mxfp8(section: Section) -> Quantized:
    return _everywhere(section, "mxfp8", Kind("mxfp8"))


def _modelopt_fp8(section: Section) -> Quantized:
    return _everywhere(section, "modelopt_fp8", _FP8_TENSOR, head=_FP8_TENSOR)


def _modelopt_fp4(section: Section) -> Quantized:
    kind = _nvfp4(str(section.get("quant_algo", "")).upper(), _group_size(section))
    return _everywhere(section, "modelopt_fp4", kind, head=kind)


def _nvfp4(algorithm: str, group: int) -> Kind:
    return Kind("nvfp4", group=group, is_awq="AWQ" in algorithm, has_inputs=algorithm != "W4A16_NVFP4")


def _group_size(section: Section) -> int:
    if section.get("group_size") is not None:
        return whole(section, "group_size", 1)
    groups = section_of(section, "config_groups")
    first = section_of(groups, next(iter(groups))) if groups else {}
    return whole(section_of(first, "weights"), "group_size", 1, 16)


def _modelopt_mixed(section: Section) -> Quantized:
    """Names of matrices, each with its algorithm; what has none is plain."""
    layers = section_of(section, "quantized_layers")
    if not layers:
        return Quantized(Kind("fp8", "block"), Kind("w4afp8", group=128))
    told = [(name, section_of(layers, name)) for name in layers]
    group, block = _first_size(told, _IN_FP4, 16), _first_size(told, _BLOCK_FP8, 128)
    of_names: dict[str, Kind | None] = {}
    for name, layer in _of_first_experts(told):
        kind = _of_algorithm(_algorithm(layer), group, block)
        of_names |= dict.fromkeys((name, name.replace("model.language_model.", "model.", 1)), kind)
    excluded = excluded_of(section, "modelopt_mixed")
    kinds = tuple(of_names.values())
    return Quantized(excluded=excluded, names=tuple(of_names), of_names=kinds, by_any_part=True)


def _of_first_experts(told: Layers) -> Iterator[tuple[str, Section]]:
    """A layer has hundreds, which are of one kind: of others than the first, what tells another."""
    seen = set()
    for name, layer in told:
        found = _EXPERT.match(name)
        if found is None or found[2] == "0" or (found[1], _algorithm(layer)) not in seen:
            yield name, layer
        if found is not None:
            seen.add((found[1], _algorithm(layer)))


def _first_size(told: Layers, of: tuple[str, ...], usual: int) -> int:
    """SGLang takes groups of all layers for as large as the first one's, and asks blocks to be alike."""
    found = [whole(layer, "group_size", 1, usual) for _, layer in told if _algorithm(layer) in of]
    if of == _BLOCK_FP8 and len(set(found)) > 1:
        raise ConfigError("quantization_config: quantized_layers has fp8 in blocks of several sizes")
    return found[0] if found else usual


def _algorithm(layer: Section) -> str:
    """Of one of quantized_layers."""
    return text(layer, "quant_algo").upper()


def _of_algorithm(algorithm: str, group: int, block: int) -> Kind | None:
    if algorithm == "FP8":
        return _FP8_TENSOR
    if algorithm in _BLOCK_FP8:
        return Kind("fp8", "block", (block, block))
    if algorithm == "MXFP8":
        return Kind("mxfp8")
    return _nvfp4(algorithm, group) if algorithm in _IN_FP4 else None


def _mxfp4(section: Section) -> Quantized:
    """Of experts alone, whatever is listed."""
    return Quantized(experts=Kind("mxfp4"))


def _awq(section: Section) -> Quantized:
    bits = whole(section, "bits" if "bits" in section else "w_bit", 2, most=8)
    group = whole(section, "group_size" if "group_size" in section else "q_group_size", -1)
    kind = Kind("awq", bits=bits, group=group)
    return _everywhere(section, "awq", kind, head=kind if flag(section, "lm_head") else None)


def _gptq(section: Section) -> Quantized:
    """Its `dynamic` are expressions over modules, of which each changes or ends theirs; experts have none."""
    kind = _gptq_kind(section)
    expressions, kinds = [], []
    dynamic = section_of(section, "dynamic")
    for told in dynamic:
        expressions.append(told.removeprefix("-:").removeprefix("+:"))
        changed = {**section, **section_of(dynamic, told)}
        kinds.append(None if told.startswith("-:") else _gptq_kind(changed))
    return Quantized(
        kind,
        kind,
        kind if flag(section, "lm_head") else None,
        expressions=tuple(expressions),
        of_expressions=tuple(kinds),
    )


def _gptq_kind(section: Section) -> Kind:
    group = whole(section, "group_size", -1)
    by_activation = flag(section, "desc_act") and group != -1
    return Kind("gptq", bits=whole(section, "bits", 2, most=8), group=group, by_activation=by_activation)


def _by_rows(dtype: str) -> Callable[[Section], Quantized]:
    def read(section: Section) -> Quantized:
        kind = Kind("int8", "row") if dtype == "int8" else Kind("fp8", "row")
        return _everywhere(section, f"w8a8_{dtype}", kind)

    return read


def _blockwise_int8(section: Section) -> Quantized:
    kind = Kind("int8", "block", block_of(section, "weight_block_size") or (128, 128))
    return _everywhere(section, "fp8", kind)


def _w4afp8(section: Section) -> Quantized:
    return Quantized(Kind("fp8", "block"), Kind("w4afp8", group=128))


def _quark(section: Section) -> Quantized:
    """Where all matrices are in fp8 alike."""
    told = section_of(section, "global_quant_config")
    weight, inputs = section_of(told, "weight"), section_of(told, "input_tensors")
    scheme = text(weight, "qscheme")
    if text(weight, "dtype") != "fp8_e4m3" or scheme not in ("per_tensor", "per_channel"):
        raise Unsupported(
            "quantization_config: of quark's formats only fp8 a tensor or a channel is known here"
        )
    if section_of(section, "layer_quant_config"):
        raise Unsupported("quantization_config: quark's layer_quant_config is not followed here")
    static = bool(inputs) and not flag(inputs, "is_dynamic")
    kind = Kind("fp8", "tensor" if scheme == "per_tensor" else "row", is_static=static)
    return _everywhere({"ignore": section.get("exclude") or []}, "compressed-tensors", kind)


_READERS: dict[str, Callable[[Section], Quantized]] = {
    "fp8": _fp8,
    "mxfp8": _mxfp8,
    "modelopt_fp8": _modelopt_fp8,
    "modelopt_fp4": _modelopt_fp4,
    "modelopt_mixed": _modelopt_mixed,
    "mxfp4": _mxfp4,
    "awq": _awq,
    "gptq": _gptq,
    "compressed-tensors": compressed,
    "w8a8_int8": _by_rows("int8"),
    "w8a8_fp8": _by_rows("fp8"),
    "blockwise_int8": _blockwise_int8,
    "w4afp8": _w4afp8,
    "quark": _quark,
}
