"""What a layer holds when SGLang has laid it out: process_weights_after_loading of each method.

Runs in the oracle's interpreter. Reads cases as `read_weights` does, and prints the bytes of its tensors.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from tests.oracle import read_weights
from tests.oracle.inside import enter, keep_output
from tests.oracle.read_held import _take_place


def main() -> None:
    enter()
    _scalars()
    out = keep_output()
    from tests.oracle.release_start import _publish, _resolved

    _publish(_resolved(["--model-path", read_weights.MODEL]))
    _take_place(1, 1, 0, 1)
    _kernels()
    for line in sys.stdin:
        case = json.loads(line)
        try:
            answer: Any = _held(case)
        except Exception as error:
            answer = {"refused": f"{type(error).__name__}: {error}"[:200]}
        print(json.dumps(answer), file=out, flush=True)


@dataclass(frozen=True)
class _Scalar:
    name: str
    size_bits: int


def _scalars() -> None:
    """What Marlin's kernels call their weights."""
    import sgl_kernel.scalar_type

    kinds = sgl_kernel.scalar_type.scalar_types
    for name, bits in (("uint4", 4), ("uint4b8", 4), ("uint8", 8), ("uint8b128", 8), ("float4_e2m1f", 4)):
        setattr(kinds, name, _Scalar(name, bits))
    for name in ("float8_e4m3fn", "float8_e8m0fnu", "float16", "bfloat16"):
        setattr(kinds, name, _Scalar(name, 16 if "16" in name else 8))


def _kernels() -> None:
    """Of packages that are stubs here: what they make, without what is in it."""
    import deep_gemm
    import flashinfer
    import torch

    def interleaved(scale: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        *many, rows, columns = scale.shape
        return scale.new_zeros((*many, _up(rows, 128), _up(columns, 4))).flatten()

    flashinfer.block_scale_interleave = flashinfer.nvfp4_block_scale_interleave = interleaved
    flashinfer.shuffle_matrix_a = lambda one, *_, **__: one.clone()
    flashinfer.shuffle_matrix_sf_a = interleaved
    flashinfer.reorder_rows_for_gated_act_gemm = lambda one, *_, **__: one.clone()
    _with_orders()
    deep_gemm.transform_sf_into_required_layout = _packed
    deep_gemm.utils.layout.get_mn_major_tma_aligned_packed_ue8m0_tensor = _packed
    for name in ("empty", "zeros", "ones", "full", "arange", "tensor"):
        setattr(torch, name, _on_cpu(getattr(torch, name)))
    torch.Tensor.cuda = lambda self, *_, **__: self
    _by_name()


def _with_orders() -> None:
    """In which TRT-LLM's kernels read rows: as they stand."""
    import flashinfer.fused_moe.core
    import flashinfer.utils
    import torch

    def rows(*told: Any, **_: Any) -> Any:
        return torch.arange(next(one for one in told if isinstance(one, torch.Tensor)).shape[0])

    core, utils = flashinfer.fused_moe.core, flashinfer.utils
    core._maybe_get_cached_w3_w1_permute_indices = core.get_w2_permute_indices_with_cache = rows
    core.get_reorder_rows_for_gated_act_gemm_row_indices = rows
    utils.get_shuffle_matrix_a_row_indices = utils.get_shuffle_matrix_sf_a_row_indices = rows
    core.convert_to_block_layout = lambda one, *_, **__: one.clone()


def _up(count: int, to: int) -> int:
    return -(-count // to) * to


def _packed(scale: Any, *_: Any, **__: Any) -> Any:
    import torch

    *many, rows, columns = scale.shape
    return torch.zeros((*many, _up(columns, 4) // 4, _up(rows, 4)), dtype=torch.int32).mT[..., :rows, :]


def _on_cpu(make: Any) -> Any:
    def made(*sizes: Any, **more: Any) -> Any:
        return make(*sizes, **{**more, **({"device": "cpu"} if "device" in more else {})})

    return made


def _by_name() -> None:
    """Kernels, wherever they were imported to."""
    import importlib

    import torch

    def words(weight: torch.Tensor, k: int, n: int, bits: int) -> torch.Tensor:
        return torch.zeros((*weight.shape[:-2], k // 16, n * 16 // (32 // bits)), dtype=torch.int32)

    def gptq(
        b_q_weight: Any = None,
        perm: Any = None,
        size_k: int = 0,
        size_n: int = 0,
        num_bits: int = 4,
        **_: Any,
    ) -> Any:
        return words(b_q_weight, size_k, size_n, num_bits)

    def awq(b_q_weight: Any = None, *told: Any, **more: Any) -> Any:
        sizes = more.get("size_k"), more.get("size_n"), more.get("num_bits")
        return words(b_q_weight, *(sizes if more else told[-3:]))

    def fp8(weight: Any, scale: Any = None, *_: Any, **__: Any) -> Any:
        return weight.to(torch.float8_e4m3fn), torch.ones(1) if scale is None else scale

    def by_rows(weight: Any, *_: Any, **__: Any) -> Any:
        return weight.to(torch.float8_e4m3fn), torch.ones((weight.shape[0], 1))

    made = {"gptq_marlin_repack": gptq, "awq_marlin_repack": awq, "gptq_marlin_moe_repack": gptq}
    made |= {"awq_marlin_moe_repack": awq, "scaled_fp8_quant": fp8, "per_token_group_quant_fp8": by_rows}
    for name in ("awq_marlin_repack", "gptq_marlin_repack"):
        for package in ("sglang.kernels.ops.quantization", "sglang.kernels.ops.gemm", "sglang.jit_kernel"):
            try:
                importlib.import_module(f"{package}.{name}")
            except ImportError:
                continue
    for module in [one for name, one in sys.modules.items() if name.startswith("sglang")]:
        for name, kernel in made.items():
            if callable(vars(module).get(name)):
                setattr(module, name, kernel)


def _held(case: dict[str, Any]) -> dict[str, Any]:
    import torch

    _choose(case)
    layer, method = read_weights.layer_of(case, "cpu")
    if method is None:
        return {"tensors": "plain"}
    layer.deepgemm_mxfp8_input = False
    _with_runner(layer, method)
    for one in layer.parameters():
        if one.dtype.is_floating_point:
            one.data = torch.ones(one.shape).to(one.dtype)
        else:
            one.data.zero_()
    method.process_weights_after_loading(layer)
    return {"held": sum(_storages(layer).values())}


def _with_runner(layer: Any, method: Any) -> None:
    """As the layer's class and create_moe_runner have left both."""
    from sglang.srt.layers.moe import utils

    told = getattr(layer, "moe_runner_config", None)
    if told is None:
        return
    told.gemm1_alpha = told.gemm1_beta = None
    for one in (method, getattr(layer, "scheme", None)):
        if one is not None:
            one.moe_runner_config, one._moe_runner_backend = told, utils.get_moe_runner_backend()
    layer.dispatcher = SimpleNamespace(set_quant_config=lambda _: None)


def _choose(case: dict[str, Any]) -> None:
    from sglang.srt.layers.quantization import fp4_utils, fp8_utils

    fp8_utils.FP8_GEMM_RUNNER_BACKEND = fp8_utils.Fp8GemmRunnerBackend(case.get("fp8_gemm", "auto"))
    fp4_utils.FP4_GEMM_RUNNER_BACKEND = fp4_utils.Fp4GemmRunnerBackend(case.get("fp4_gemm", "auto"))


def _storages(layer: Any) -> dict[int, int]:
    """Bytes by where they lie: several names may stand for one."""
    import torch

    found = [*vars(layer).values(), *layer.parameters(), *layer.buffers()]
    storages = [one.untyped_storage() for one in found if isinstance(one, torch.Tensor)]
    return {one.data_ptr(): one.nbytes() for one in storages}


if __name__ == "__main__":
    main()
