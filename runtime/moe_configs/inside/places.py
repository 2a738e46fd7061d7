"""Where releases of SGLang have the look-up of Triton configurations and the layer: the first is used."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

_TRITON = ("sglang.srt.layers.moe.moe_runner.triton_utils", "sglang.srt.layers.moe.fused_moe_triton")
_DENSE = ("sglang.kernels.ops.quantization.fp8_kernel", "sglang.srt.layers.quantization.fp8_kernel")
MOE_LOOKUP, DENSE_LOOKUP, LAYER = "get_moe_configs", "get_w8a8_block_fp8_configs", "fused_experts_impl"
CHOICE = "try_get_optimal_moe_config"


class Places(NamedTuple):
    """Modules: `configs` has the look-up of the MoE's files, `layer` the layer, `dense` the other look-up."""

    configs: Any
    layer: Any
    dense: Any


def places() -> Places:
    return Places(
        _first([f"{one}.fused_moe_triton_config" for one in _TRITON], MOE_LOOKUP),
        _first([f"{one}.fused_moe" for one in _TRITON], LAYER),
        _first(_DENSE, DENSE_LOOKUP),
    )


def _first(names: Sequence[str], function: str) -> Any:
    """Return the first of these modules that can be imported and has the function."""
    for name in names:
        try:
            module = import_module(name)
        except ImportError:
            continue
        if hasattr(module, function):
            return module
    return None
