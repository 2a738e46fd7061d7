"""The lookups of FlashInfer's tuned ops, as its key functions write them: op, runner, shapes, extras.

Taken from FlashInfer 0.7.2, and held against that package's own key functions in tests/stock. A bucket stands
for every row count that rounds to it; an input that is absent has the shape (0,).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from runtime.server.call_rules import Routing
from runtime.server.flashinfer import KeyForm
from runtime.server.rows import Seen
from sgl_tune.cache.policies import COLD, COLD_UNREPLAYED, HOT, Policy

Shape = tuple[int, ...]
Profile = tuple[Shape, ...]

ABSENT: Shape = (0,)
SWIGLU, GEGLU, RELU2 = 3, 4, 6
MOE_RUNNER = "MoERunner"
_TRTLLM = "flashinfer::trtllm_"
TRTLLM_FP4 = "flashinfer::trtllm_fp4_block_scale_moe"
# The class of a compiled kernel module, as FlashInfer writes it into trtllm keys.
MODULE = "Module"

BFLOAT16, E4M3, MX_E4M3, E2M1, MX_E2M1 = 1052672, 1050629, 17827853, 17826818, 17826828
MX_INT4 = 17892366
NO_FP8, DEEPSEEK_FP8, MX_FP8 = 0, 1, 2
MAJOR_K, BLOCK_MAJOR_K = 0, 2


class Dtype(str):
    """A dtype in a key: `torch.bfloat16`, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True, slots=True)
class OpShape:
    """One op of one deployment. `extras` has a member for each rank where a version names ranks, else one."""

    op: str
    policy: Policy
    profile: Callable[[int], Profile]
    extras: tuple[tuple[Any, ...], ...]
    runner: str = MOE_RUNNER
    seen: Seen = "gathered"
    largest: int | None = None  # bucket, where its call names none

    def keys(self, bucket: int, form: KeyForm) -> tuple[str, ...]:
        profile = self.profile(bucket)
        if self.op.startswith(_TRTLLM) and not form.lora_rows:
            profile = (*profile[:-2], profile[-1])
        head = (self.op, self.runner, profile)
        if not form.has_extras:
            return (str(head),)
        if not self.op.startswith(form.options_of):
            return (str((*head, ())),)
        return tuple(str((*head, extras)) for extras in self.extras)


@dataclass(frozen=True, slots=True)
class Experts:
    """One rank's share of a MoE layer. `intermediate` is what the kernel is given: padded where it pads."""

    hidden: int
    intermediate: int
    local: int
    total: int
    top_k: int
    tp: int = 1
    ep: int = 1
    gated: bool = True
    gelu: bool = False
    finishes: bool = True  # or each answer is left for a later kernel

    @property
    def first_rows(self) -> int:
        return (2 if self.gated else 1) * self.intermediate

    @property
    def activation(self) -> int:
        """FlashInfer's number for it."""
        gates = GEGLU if self.gelu else SWIGLU
        return gates if self.gated else RELU2


def cutlass_moe(
    experts: Experts,
    form: KeyForm,
    *,
    activation: Dtype,
    weight: Dtype,
    output: Dtype,
    fused_finalize: bool,
    alltoall: bool = False,
    packed: int,
    rows_packed: int = 1,
    biases: bool = False,
    mxfp8_rows: bool = False,
    weight_groups: bool = False,
    fp8_rows: bool = False,
) -> tuple[OpShape, ...]:
    """`cutlass_fused_moe` tunes its two GEMMs as two ops with the same inputs; `packed` values an element."""
    e, h, i = experts.local, experts.hidden, experts.intermediate
    first, second = ((e, experts.first_rows), (e, h)) if biases else (ABSENT, ABSENT)

    def profile(tokens: int) -> Profile:
        return (
            (tokens, h // rows_packed),
            (e, experts.first_rows, h // packed),
            first,
            (e, h, i // packed),
            second,
        )

    formats = (False, weight_groups, mxfp8_rows, fp8_rows, False)
    options = (alltoall, *formats, True, experts.activation, False, fused_finalize)
    extras = tuple(
        (activation, weight, output, experts.top_k, *sizes, *options) for sizes in _sizes(experts, form)
    )
    return tuple(OpShape(f"trtllm::fused_moe::{gemm}", HOT, profile, extras) for gemm in ("gemm1", "gemm2"))


def _sizes(experts: Experts, form: KeyForm) -> list[tuple[int, ...]]:
    """tp, ep and cluster sizes, each followed by the rank where the version names ranks."""
    if not form.names_ranks:
        return [(experts.tp, experts.ep, 1)]
    return [
        (experts.tp, tp_rank, experts.ep, ep_rank, 1, 0)
        for tp_rank in range(experts.tp)
        for ep_rank in range(experts.ep)
    ]


def trtllm_fp8_block_moe(experts: Experts, routing: Routing) -> OpShape:
    extras = _trtllm_extras(experts, E4M3, E4M3, fp8=DEEPSEEK_FP8)
    op = "flashinfer::trtllm_fp8_block_scale_moe"
    h = experts.hidden
    return OpShape(op, COLD, _trtllm_profile(experts, routing, scale=lambda t: (h // 128, t)), extras)


def trtllm_mxint4_moe(experts: Experts) -> OpShape:
    extras = _trtllm_extras(experts, BFLOAT16, MX_INT4, shuffled=True, layout=BLOCK_MAJOR_K)
    op = "flashinfer::trtllm_mxint4_block_scale_moe"
    return OpShape(op, COLD, _trtllm_profile(experts, "logits"), extras)


def trtllm_mxfp8_moe(experts: Experts, routing: Routing) -> OpShape:
    extras = _trtllm_extras(experts, MX_E4M3, MX_E4M3, fp8=MX_FP8, shuffled=True)
    op, h = "flashinfer::trtllm_fp8_block_scale_moe", experts.hidden
    return OpShape(op, COLD, _trtllm_profile(experts, routing, scale=lambda t: (t, h // 32)), extras)


def trtllm_fp8_tensor_moe(experts: Experts, routing: Routing) -> OpShape:
    """An op of its own where the experts are chosen before."""
    extras = _trtllm_extras(experts, E4M3, E4M3, shuffled=True)
    op = f"flashinfer::trtllm_fp8_per_tensor_scale_{'' if routing == 'logits' else 'routed_'}moe"
    return OpShape(op, COLD, _trtllm_profile(experts, routing, buffers=True), extras)


def trtllm_bf16_moe(experts: Experts, routing: Routing) -> OpShape:
    extras = _trtllm_extras(experts, BFLOAT16, BFLOAT16, shuffled=True, layout=BLOCK_MAJOR_K)
    return OpShape("flashinfer::trtllm_bf16_moe", COLD, _trtllm_profile(experts, routing), extras)


def trtllm_nvfp4_moe(experts: Experts, routing: Routing, by_token: bool) -> OpShape:
    """Activations are packed two a byte, a scale for sixteen, and another for each token or for all."""
    h = experts.hidden
    profile = _trtllm_profile(
        experts, routing, lambda t: (t, h // 16), width=h // 2, buffers=True, by_token=by_token
    )
    extras = _trtllm_extras(experts, E2M1, E2M1, shuffled=True, by_token=by_token)
    return OpShape(TRTLLM_FP4, COLD, profile, extras)


def trtllm_mxfp4_moe(
    experts: Experts, output: int, routing: Routing = "logits", plain_rows: bool = False
) -> OpShape:
    """mxfp4 weights, rows in mxfp8 or plain ones, for gpt-oss both padded; `output`: the model's width."""
    h = experts.hidden
    scale = (lambda t: ABSENT) if plain_rows else (lambda t: (t, h // 32))
    profile = _trtllm_profile(experts, routing, scale=scale, output=output, buffers=True)
    extras = _trtllm_extras(experts, BFLOAT16 if plain_rows else MX_E4M3, MX_E2M1, shuffled=True)
    return OpShape(TRTLLM_FP4, COLD, profile, extras)


def _trtllm_profile(
    experts: Experts,
    routing: Routing,
    scale: Callable[[int], Shape] = lambda t: ABSENT,
    output: int | None = None,
    width: int | None = None,
    buffers: bool = False,
    by_token: bool = False,
) -> Callable[[int], Profile]:
    """Output, logits, top-k ids and weights, activations, their scales, LoRA delta, per-token scales.

    Where the kernel routes, ids and weights are placeholders, or `buffers` that the op allocates.
    """
    h, k = experts.hidden, experts.top_k

    def profile(t: int) -> Profile:
        logits = (t, experts.total) if routing == "logits" else ABSENT
        ids = (t, k) if buffers or routing != "logits" else (t,)
        weights = (t, k) if buffers or routing == "apart" else (t,)
        out, columns = h if output is None else output, width or h
        out = out if experts.finishes else 0
        return ((t, out), logits, ids, weights, (t, columns), scale(t), ABSENT, (t,) if by_token else ABSENT)

    return profile


def _trtllm_extras(
    experts: Experts,
    activation: int,
    weight: int,
    *,
    fp8: int = NO_FP8,
    shuffled: bool = False,
    layout: int = MAJOR_K,
    by_token: bool = False,
) -> tuple[tuple[Any, ...], ...]:
    sizes = (experts.hidden, experts.hidden, experts.intermediate)
    counts = (experts.top_k, experts.local, experts.total, 0)
    activated = experts.activation
    formats = (activation, weight, fp8)
    return ((MODULE, *counts, *formats, *sizes, activated, shuffled, layout, False, by_token),)


def cutedsl_nvfp4_moe(
    experts: Experts, first: tuple[int, ...], form: KeyForm, output: Dtype, fused: bool, by_token: bool
) -> OpShape:
    """CuTe DSL's wrapper: interleaved scales as tiles, and its own output. `first`: each EP rank's expert.
    `fused`: finalized in the second GEMM."""
    e, h, i, k = experts.local, experts.hidden, experts.intermediate, experts.top_k

    def tiles(rows: int, columns: int) -> Shape:
        return (32, 4, -(-rows // 128), 4, -(-columns // 64), e)

    def profile(t: int) -> Profile:
        rows = ((t, h // 2), (t, h // 16), (t, k), (t, k))
        up = ((e, experts.first_rows, h // 2), tiles(experts.first_rows, h), (e,), (1,))
        scale: Profile = ((t,),) if by_token else ()
        return (*rows, *up, (e, h, i // 2), tiles(h, i), (e,), *scale, (t, h))

    name, runner, extras = _cutedsl_form(experts, first, form, (fused, output, True))
    return OpShape(name, COLD_UNREPLAYED, profile, extras, runner=runner)


def _cutedsl_form(
    experts: Experts, first: tuple[int, ...], form: KeyForm, rest: tuple[Any, ...]
) -> tuple[str, str, tuple[tuple[Any, ...], ...]]:
    op, runner = "CuteDslMoEWrapper::run", "CuteDslFusedMoENvfp4Runner"
    if form.cutedsl_moe == "plain":
        return op, runner, ((),)
    kind = "Swiglu" if experts.gated else "Relu2"
    swiglu = (experts.activation, 1.0, 0.0, 3.4028234663852886e38)
    if form.cutedsl_moe == "by activation":
        return f"{op}::{kind}", runner, (swiglu,)
    if form.cutedsl_moe == "by situ":
        return f"{op}::{kind}", runner, ((*swiglu, None, None),)
    offsets: list[tuple[int, ...]] = [(one,) for one in first]
    sizes = [()] if form.cutedsl_moe == "by quant mode" else offsets
    extras = tuple(("w4a4", *swiglu, None, None, experts.total, *size, *rest) for size in sizes)
    return f"{op}::w4a4::{kind}", "CuteDslFusedMoERunner", extras


def cpu_moe(experts: Experts, dtype: Dtype) -> tuple[OpShape, ...]:
    """Our own grouped GEMMs, which stand in for FlashInfer's where there is no GPU."""
    e, h, i, k = experts.local, experts.hidden, experts.intermediate, experts.top_k
    extras = ((dtype, experts.total),)
    gemms: tuple[Callable[[int], Profile], ...] = (
        lambda t: ((t, h), (t, k), (e, 2 * i, h)),
        lambda t: ((t, k, i), (t, k), (e, h, i)),
    )
    return tuple(
        OpShape(f"sgl_tune::cpu_grouped_gemm{number}", HOT, profile, extras, runner="CpuGroupedGemm")
        for number, profile in enumerate(gemms, start=1)
    )
