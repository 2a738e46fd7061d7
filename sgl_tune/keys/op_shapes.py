"""The lookups of FlashInfer's tuned ops as its key functions write them: op, runner, shapes, extras.
tests/stock compares them with FlashInfer's own key functions. A bucket stands for every row count that
rounds to it; an absent input has the shape (0,)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from runtime.flashinfer.versions import COLD, HOT, Policy
from runtime.server.sizes.batches import Seen
from runtime.server.sizes.call_rules import Routing

Shape = tuple[int, ...]
Profile = tuple[Shape, ...]

ABSENT: Shape = (0,)
SWIGLU, RELU2 = 3, 6
MOE_RUNNER, DENSE_OPS = "MoERunner", ("fp8_gemm", "fp4_gemm")
# The class of a compiled kernel module, as FlashInfer writes it into trtllm keys.
_MODULE = "Module"
_BFLOAT16, _E4M3, _MX_E4M3, _E2M1, _MX_E2M1 = 1052672, 1050629, 17827853, 17826818, 17826828
_TRTLLM_GEMM = (False, _E2M1, _BFLOAT16)  # scales in tiles of 128 rows; what goes in and out
_NO_FP8, _DEEPSEEK_FP8 = 0, 1
_MAJOR_K, _BLOCK_MAJOR_K = 0, 2
# The runners of mm_fp4's backends, by SGLang's names.
FP4_RUNNERS = {
    "flashinfer_cutedsl": "CuteDSLFp4GemmRunner",
    "flashinfer_cutlass": "CutlassFp4GemmRunner",
    "flashinfer_cudnn": "CudnnFp4GemmRunner",
    "flashinfer_trtllm": "TrtllmGemmRunner",
}
_FP4_GROUP, _SCALE_ROWS, _SCALE_COLUMNS = 16, 128, 4  # the last two: a tile of interleaved scales


class Dtype(str):
    """A dtype in a key: `torch.bfloat16`, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


E4M3, BF16 = Dtype("torch.float8_e4m3fn"), Dtype("torch.bfloat16")


@dataclass(frozen=True, slots=True)
class OpShape:
    """One op of one deployment, with the call's options (`extras`)."""

    op: str
    policy: Policy
    profile: Callable[[int], Profile]
    extras: tuple[Any, ...]
    runner: str = MOE_RUNNER
    seen: Seen = "gathered"

    def key(self, bucket: int) -> str:
        return str((self.op, self.runner, self.profile(bucket), self.extras))


@dataclass(frozen=True, slots=True)
class Experts:
    """One rank's share of a MoE layer. `intermediate`: the size that the kernel gets, with padding."""

    hidden: int
    intermediate: int
    local: int
    total: int
    top_k: int
    tp: int = 1
    ep: int = 1
    gated: bool = True

    @property
    def first_rows(self) -> int:
        return (2 if self.gated else 1) * self.intermediate

    @property
    def activation(self) -> int:
        """Return FlashInfer's number of the activation."""
        return SWIGLU if self.gated else RELU2


@dataclass(frozen=True, slots=True)
class Stored:
    """Dtypes of a CUTLASS call, the number of values in one element of a weight and of a row, and its
    mxfp4 flags."""

    rows: Dtype
    weight: Dtype
    output: Dtype
    packed: int = 1
    rows_packed: int = 1
    biases: bool = False
    mxfp8_rows: bool = False
    weight_groups: bool = False


def cutlass_moe(experts: Experts, stored: Stored, alltoall: bool) -> tuple[OpShape, ...]:
    """Return the ops of `cutlass_fused_moe`, which tunes its two GEMMs as two ops with the same inputs."""
    e, h, i = experts.local, experts.hidden, experts.intermediate
    first, second = ((e, experts.first_rows), (e, h)) if stored.biases else (ABSENT, ABSENT)

    def profile(tokens: int) -> Profile:
        up, down = (e, experts.first_rows, h // stored.packed), (e, h, i // stored.packed)
        return ((tokens, h // stored.rows_packed), up, first, down, second)

    formats = (False, stored.weight_groups, stored.mxfp8_rows, False, False)
    options = (alltoall, *formats, True, experts.activation, False, False)
    dtypes = (stored.rows, stored.weight, stored.output, experts.top_k)
    extras = (*dtypes, experts.tp, experts.ep, 1, *options)
    return tuple(OpShape(f"trtllm::fused_moe::{gemm}", HOT, profile, extras) for gemm in ("gemm1", "gemm2"))


def trtllm_fp8_block_moe(experts: Experts, routing: Routing) -> OpShape:
    extras = _trtllm_extras(experts, _E4M3, _E4M3, fp8=_DEEPSEEK_FP8)
    profile = _trtllm_profile(experts, routing, scale=lambda t: (experts.hidden // 128, t))
    return OpShape("flashinfer::trtllm_fp8_block_scale_moe", COLD, profile, extras)


def trtllm_bf16_moe(experts: Experts, routing: Routing) -> OpShape:
    extras = _trtllm_extras(experts, _BFLOAT16, _BFLOAT16, shuffled=True, layout=_BLOCK_MAJOR_K)
    return OpShape("flashinfer::trtllm_bf16_moe", COLD, _trtllm_profile(experts, routing), extras)


def trtllm_nvfp4_moe(experts: Experts, routing: Routing) -> OpShape:
    """Return TRT-LLM's nvfp4 op. Activations are packed two per byte, with a scale per 16 values."""
    h = experts.hidden
    profile = _trtllm_profile(experts, routing, lambda t: (t, h // 16), width=h // 2, buffers=True)
    extras = _trtllm_extras(experts, _E2M1, _E2M1, shuffled=True)
    return OpShape("flashinfer::trtllm_fp4_block_scale_moe", COLD, profile, extras)


def trtllm_mxfp4_moe(experts: Experts, output: int) -> OpShape:
    """Return TRT-LLM's mxfp4 op: mxfp4 weights and mxfp8 rows, both padded. `output`: the model's width."""
    h = experts.hidden
    profile = _trtllm_profile(experts, "logits", lambda t: (t, h // 32), output=output, buffers=True)
    extras = _trtllm_extras(experts, _MX_E4M3, _MX_E2M1, shuffled=True)
    return OpShape("flashinfer::trtllm_fp4_block_scale_moe", COLD, profile, extras)


def _trtllm_profile(
    experts: Experts,
    routing: Routing,
    scale: Callable[[int], Shape] = lambda t: ABSENT,
    output: int | None = None,
    width: int | None = None,
    buffers: bool = False,
) -> Callable[[int], Profile]:
    """Return the shapes: output, logits, top-k ids and weights, activations, their scales, LoRA delta,
    per-token scales. If the kernel does the routing, ids and weights are placeholders, or `buffers` that
    the op allocates."""
    h, k = experts.hidden, experts.top_k

    def profile(t: int) -> Profile:
        logits = (t, experts.total) if routing == "logits" else ABSENT
        chosen = (t, k) if buffers or routing != "logits" else (t,)
        return ((t, output or h), logits, chosen, chosen, (t, width or h), scale(t), ABSENT, ABSENT)

    return profile


def _trtllm_extras(
    experts: Experts,
    activation: int,
    weight: int,
    fp8: int = _NO_FP8,
    shuffled: bool = False,
    layout: int = _MAJOR_K,
) -> tuple[Any, ...]:
    sizes = (experts.hidden, experts.hidden, experts.intermediate)
    counts = (experts.top_k, experts.local, experts.total, 0)
    formats = (activation, weight, fp8)
    return (_MODULE, *counts, *formats, *sizes, experts.activation, shuffled, layout, False, False)


def dense_fp8(k: int, n: int, output: Dtype, seen: Seen, products: int = 1) -> OpShape:
    """Return `bmm_fp8`'s op: one product of a linear layer quantized per tensor, or one per head."""

    def profile(tokens: int) -> Profile:
        sizes = ((products, tokens, k), (products, k, n))
        return (*sizes, (1,), (1,), (products, -1, n), (-1,))

    return OpShape("fp8_gemm", HOT, profile, (E4M3, E4M3, output), "CublasFp8GemmRunner", seen)


def dense_fp4(k: int, n: int, backend: str, output: Dtype, seen: Seen) -> OpShape:
    """Return `mm_fp4`'s op: two values per byte, weights as padded columns, a scale per 16 values, and one
    for all."""
    aligned_n, aligned_k = (_SCALE_ROWS, 64) if backend == "flashinfer_trtllm" else (32, 32)
    rows, columns = round_up(n, aligned_n), round_up(k, aligned_k)
    groups = round_up(columns // _FP4_GROUP, _SCALE_COLUMNS)
    weight = ((columns // 2, rows), (-1, groups), (groups, round_up(n, _SCALE_ROWS)))
    rest = ((), ABSENT, (-1, rows), ABSENT, ABSENT, (-1,))

    def profile(tokens: int) -> Profile:
        return ((tokens, columns // 2), *weight, *rest)

    options = {"flashinfer_trtllm": _TRTLLM_GEMM, "flashinfer_cudnn": (output, _FP4_GROUP, True, True)}
    return OpShape("fp4_gemm", COLD, profile, options.get(backend, ()), FP4_RUNNERS[backend], seen)


def cpu_moe(experts: Experts, dtype: Dtype) -> tuple[OpShape, ...]:
    """Return our own grouped GEMMs, which replace FlashInfer's on a machine without a GPU."""
    e, h, i, k = experts.local, experts.hidden, experts.intermediate, experts.top_k
    gemms: tuple[Callable[[int], Profile], ...] = (
        lambda t: ((t, h), (t, k), (e, 2 * i, h)),
        lambda t: ((t, k, i), (t, k), (e, h, i)),
    )
    return tuple(
        OpShape(f"sgl_tune::cpu_grouped_gemm{number}", HOT, profile, (dtype, experts.total), "CpuGroupedGemm")
        for number, profile in enumerate(gemms, start=1)
    )


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
