"""How a checkpoint's quantization is read and laid out: each method's members,
each kind under each server."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from runtime.server.declared import declared_quantization
from runtime.server.excluded import excluded_of
from runtime.server.formats.kinds import Kind, Served, format_of, format_of_experts
from runtime.server.formats.read import quantized_of
from runtime.server.formats.tensors import Format, Matrix
from runtime.server.kv_cache import _is_static_fp8, _names_fp8
from tests.book.plain import plain, told
from tests.book.rows import Row


def formats() -> Iterator[Row]:
    kinds: list[Kind | None] = [None]
    kinds += [Kind(name) for name in ("mxfp8", "mxfp4", "mxfp4_online", "fp8_online", "mxfp8_online")]
    kinds += [Kind("w4afp8", group=128)]
    for name in ("fp8", "int8"):
        kinds += [Kind(name, "block", block) for block in ((128, 128), (64, 128))]
        for is_static, one in product((True, False), (True, False)):
            kinds.append(Kind(name, "tensor", is_static=is_static, one_input=one))
            kinds.append(Kind(name, "row", is_static=is_static, one_input=one))
    kinds += [Kind("nvfp4", group=group, is_awq=awq) for group, awq in ((16, False), (32, True))]
    kinds += [Kind("nvfp4_packed", has_inputs=has) for has in (True, False)]
    kinds += [Kind("awq", bits=bits, group=group) for bits, group in ((4, 128), (8, 64), (4, 32))]
    for bits, group, order in product((4, 8), (-1, 64), (True, False)):
        kinds.append(Kind("gptq", bits=bits, group=group, by_activation=order))
        kinds += [
            Kind("packed", bits=bits, group=group, by_activation=order, symmetric=even, whole_scales=whole)
            for even, whole in ((True, False), (False, True), (False, False))
        ]
    for kind in kinds:
        for served in _served(kind):
            yield f"{kind} {served}", [*_made(kind, served)]


def _served(kind: Kind | None) -> list[Served]:
    found = [Served()]
    if kind is not None and kind.name in ("nvfp4", "mxfp4"):
        names = (
            "flashinfer_trtllm",
            "flashinfer_megamoe",
            "marlin",
            "flashinfer_mxfp4",
            "triton_kernel",
            "deep_gemm",
        )
        found += [Served(major, name) for major, name in product((9, 10, 12), names)]
        found += [
            Served(10, "flashinfer_trtllm_routed", "megamoe"),
            Served(10, "flashinfer_trtllm", is_gated=False),
        ]
    elif kind is None or kind.per == "block":
        found += [Served(10), Served(12), Served(10, "flashinfer_trtllm")]
    return found


def _made(kind: Kind | None, served: Served) -> Iterator[Any]:
    linears = (
        Matrix((256, 128), 384, 384, False),
        Matrix((256,), 192, 384, False),
        Matrix((192, 96), 512, 512, True),
        Matrix((100,), 36, 36, True),
        Matrix((64,), 200, 400, False),
        Matrix((64, 64), 40, 80, False),
    )
    for matrix in linears:
        yield told(_tensors_of, kind, served, matrix)
    for hidden, inner in ((512, 256), (768, 192), (288, 160), (320, 256), (512, 288), (256, 200)):
        for matrix in (
            Matrix((inner, inner), hidden, hidden, True, 2, 8),
            Matrix((hidden,), inner, 2 * inner, False, 2, 8, is_down=True),
            Matrix((inner,), hidden, hidden, False, 8, 8),
        ):
            yield told(_tensors_of, kind, served, matrix, (hidden, inner))


def _tensors_of(
    kind: Kind | None, served: Served, matrix: Matrix, of_experts: tuple[int, int] | None = None
) -> list[Any]:
    made = format_of(kind, served) if of_experts is None else format_of_experts(kind, served, *of_experts)
    return _tensors(made, matrix)


def _tensors(made: Format, matrix: Matrix) -> list[Any]:
    checked = told(made.check, matrix)
    here = [[one.name, one.dtype, list(one.shape)] for one in made.tensors(matrix)]
    of = made.experts if matrix.experts else made.linear
    files = "".join("FS"[not one.in_file] for one in of)
    after = [[how.how, how.lists, one.name, one.dtype, list(one.shape)] for how, one in made.after(matrix)]
    return [made.name, checked and checked["refused"]["says"], files, here, after]


_PARTS = {
    "qkv": [f"model.layers.3.self_attn.{one}_proj" for one in "qkv"],
    "gate_up": [f"model.layers.3.mlp.{one}_proj" for one in ("gate", "up")],
    "down": ["model.layers.3.mlp.down_proj"],
    "latent": [f"model.layers.3.self_attn.{one}" for one in ("q_a_proj", "kv_a_proj_with_mqa")],
}
_INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}
_FP8 = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False}
_FP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
_LISTED: tuple[Any, ...] = (
    [], ["lm_head"], ["model.layers.3.mlp"], ["model.layers.3.self_attn.q_proj"], ["*self_attn*"],
    ["q_a_proj"],
    ["re:.*mlp.*", "lm_head"], ["model.language_model.layers.3.mlp.gate_proj", "layers.3.self_attn"],
    ["language_model.model.layers.3.mlp.down_proj."], ["model.layers.3.mlp.experts"], "all", [1], ["mlp"],
    ["model.layers.3.mlp.experts.0.gate_proj", "model.layers.3.mlp.experts.0.up_proj"], ["*layers.3*down*"],
    ["experts"], ["a+b"], [f"model.layers.3.self_attn.{one}_proj" for one in "qkv"],
    ["model.layers.3.self_attn.qkv_proj"], ["model.layers.3.mlp.gate_up_proj"],
)  # fmt: skip


def sections() -> Iterator[Row]:
    """quantization_config's members as each method reads them: which kind a matrix has then."""
    for method, section in _sections():
        yield f"{method} {section}", told(_kinds, method, section)
    for method in (
        "fp8",
        "mxfp8",
        "modelopt_fp4",
        "modelopt_fp8",
        "awq",
        "compressed-tensors",
        "w8a8_int8",
        "modelopt_mixed",
    ):
        for key, listed in product(
            ("ignored_layers", "modules_to_not_convert", "ignore", "exclude_modules"), _LISTED
        ):
            section = {key: listed, **({"bits": 4, "group_size": 64} if method == "awq" else {})}
            found = told(_plain_ones, method, section)
            if found:
                yield f"{method} {section}", found


def _plain_ones(method: str, section: dict[str, Any]) -> list[Any]:
    found = excluded_of(section, method)
    kept: list[Any] = [name for name, parts in _PARTS.items() if found.linear(parts)]
    kept += [
        name for name in ("model.layers.3.mlp.experts", "model.layers.4.mlp.experts") if found.experts(name)
    ]
    kept += [name for name in ("lm_head", "model.layers.3.mlp.gate") if found.one(name)]
    return [*kept, list(found.doubts(4))] if kept or found else []


def _kinds(method: str, section: dict[str, Any]) -> dict[str, Any]:
    found = quantized_of(section, method)
    kinds = {name: told(found.of_linear, parts) for name, parts in _PARTS.items()}
    kinds["experts"] = told(found.of_experts, "model.layers.3.mlp.experts")
    return {**kinds, "head": plain(found.of_head()), "layer": plain(set(found.of_layer("model.layers.3")))}


def _sections() -> Iterator[tuple[str, dict[str, Any]]]:
    for scheme in ("static", "dynamic", None):
        for block in (None, [128, 128], [64, 32], [128], "x", [0, 1]):
            yield "fp8", {"activation_scheme": scheme, "weight_block_size": block}
    for name in (
        "mxfp8",
        "modelopt_fp8",
        "mxfp4",
        "w8a8_int8",
        "w8a8_fp8",
        "w4afp8",
        "blockwise_int8",
        "nothing",
    ):
        yield name, {"quant_method": name}
        yield name.upper(), {"weight_block_size": [64, 64], "group_size": 64}
    for algorithm in ("NVFP4", "NVFP4_AWQ", "FP8", "MXFP8", "FP8_PB_WO", "INT8"):
        yield "modelopt_fp4", {"quant_algo": algorithm, "group_size": 32}
        yield "modelopt_mixed", {"quantized_layers": {_PARTS["down"][0]: {"quant_algo": algorithm}}}
    for told_of in ({}, {"bits": 4}, {"w_bit": 4, "q_group_size": 64}, {"bits": 1, "group_size": 64},
                    {"bits": 2, "group_size": -1}, {"bits": 8, "group_size": -2}, {"bits": 9,
                    "group_size": 1},
                    {"bits": 4, "group_size": 128, "lm_head": True}, {"bits": "4", "group_size": 128},
                    {"bits": 4, "group_size": 128, "desc_act": True}, {"bits": 4, "group_size": -1,
                    "desc_act": True},
                    {"bits": 4, "group_size": 0, "lm_head": "x"}, {"w_bit": 2, "group_size": 64,
                    "q_group_size": 32},
                    {"bits": 4, "group_size": 64, "dynamic": {"-:.*mlp.*": {}, "+:.*qkv.*": {"bits": 8}}},
                    {"bits": 4, "group_size": 64, "dynamic": {".*down.*": {"group_size": 32,
                    "desc_act": True}}}):  # fmt: skip
        yield "awq", told_of
        yield "gptq", told_of
    for weights, inputs, form in product(
        (_INT4, {**_INT4, "actorder": "group"}, {**_INT4, "symmetric": False}, {**_INT4, "num_bits": 8},
         {**_INT4, "strategy": "channel", "group_size": None, "num_bits": 8}, _FP8, {**_FP8,
         "strategy": "tensor"},
         {**_FP8, "strategy": "block", "block_structure": [128, 128]}, _FP4, {**_FP4, "strategy": "group",
         "group_size": 32},
         {**_FP8, "type": "int"}, {**_FP8, "dynamic": True}, {**_INT4, "num_bits": 3}, "x", None),
        (None, {**_FP8, "strategy": "token", "dynamic": True}, {**_FP8, "strategy": "tensor"}, {**_FP4,
        "dynamic": "local"},
         {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True, "symmetric": True}, "x"),
        ("pack-quantized", "float-quantized", "int-quantized", "nvfp4-pack-quantized", None),
    ):  # fmt: skip
        group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
        yield "compressed-tensors", {"format": form, "config_groups": {"group_0": group}, "ignore": []}
    tokens = {**_FP8, "strategy": "token", "dynamic": True}
    for targets, ignored, form in product(
        (["Linear"], ["MoE"], ["RoutedExperts"], ["FusedMoE"], ["re:.*mlp.*"],
        ["model.layers.3.mlp.down_proj"], ["qkv_proj"],
         [r"re:.*experts\.\d+\.(gate|up|down)_proj"], ["model.layers.3.mlp.gate_up_proj"], [], "Linear", [1]),
        ([], ["lm_head", "re:.*self_attn.*"]),
        (None, "pack-quantized"),
    ):  # fmt: skip
        named = {"targets": targets, "weights": _FP8, "input_activations": tokens}
        whole = {"targets": ["Linear"], "weights": _INT4}
        for groups in (
            {"a": named},
            {"a": named, "b": whole},
            {"b": whole, "a": {**named, "format": "float-quantized"}},
        ):
            yield "compressed-tensors", {"format": form, "config_groups": groups, "ignore": ignored}
    yield from _quark()


def _quark() -> Iterator[tuple[str, dict[str, Any]]]:
    for weights in ({"dtype": "fp8_e4m3", "qscheme": "per_tensor"}, {"dtype": "fp8_e4m3",
    "qscheme": "per_channel"},
                    {"dtype": "fp4", "qscheme": "per_group"}, {"dtype": "int8", "qscheme": "per_tensor"},
                    None):  # fmt: skip
        for inputs in (None, {"is_dynamic": True}, {"is_dynamic": False}):
            told_of = {"weight": weights, "input_tensors": inputs}
            yield "quark", {"global_quant_config": told_of, "exclude": ["lm_head"]}
            yield "quark", {"global_quant_config": told_of, "layer_quant_config": {"*mlp*": told_of}}


def declared() -> Iterator[Row]:
    for method in ("modelopt", None, "fp8", "FP8", "modelopt_fp4", 5, ""):
        for algorithm in ("NVFP4", "FP8", "MIXED_PRECISION", "fp8", "W4A8", None):
            section = {"quant_method": method, "quant_algo": algorithm}
            section = {name: one for name, one in section.items() if one is not None}
            yield f"{section}", told(declared_quantization, {"quantization_config": section})
    for scheme in ({}, _FP8, {**_FP8, "strategy": "tensor"}, {**_FP8, "strategy": "tensor",
    "symmetric": False},
                   {**_FP8, "strategy": "tensor", "dynamic": True}, {"type": "float", "num_bits": 8},
                   "FP8", None,
                   {**_FP8, "strategy": "tensor", "type": "int"}, {"num_bits": 8, "type": "float",
                   "strategy": "tensor"}):  # fmt: skip
        yield f"static {scheme}", [_is_static_fp8(scheme), _names_fp8(scheme)]


QUANTIZATIONS_OF = {one.__name__: one for one in (formats, sections, declared)}
