"""A row a MoE backend and a row an all-to-all: what each takes, since when, and what stands in for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Number = tuple[int, ...]
# Families of tuned calls: those of one look their tactics up alike.
Calls = Literal["cutlass", "trtllm", "mxfp4", "cutedsl"]
FIRST: Number = ()  # before every release


@dataclass(frozen=True, slots=True)
class MoEBackendRow:
    """`tuned_since` is the first release whose server tunes it; None: FlashInfer has nothing to tune."""

    name: str
    tuned_since: Number | None = None
    # MODULE:CLASS of runtime/moe: the kernels that this runtime has, and a reference in torch for all others.
    kernels: str = "torch_backend:TorchBackend"
    calls: Calls | None = None
    # The GPUs that it has kernels for, where not all that are tuned.
    kernel_majors: tuple[int, ...] = ()
    # Its kernels are others than the stand-in's: a prediction's workspaces are not its own.
    stood_in: bool = True
    # But on these GPUs this runtime has them, of which no sizes are known.
    own_majors: tuple[int, ...] = ()
    # But their sizes are known: a prediction needs no stand-in.
    is_predicted: bool = False
    # The range of its buckets follows the prefill chunk where a release does so.
    ranged_by_chunk: bool = False
    # It is given the experts' ids and weights, not the router's logits.
    routed: bool = False
    # A row that no expert takes is marked with -1, or with the number behind the last expert.
    marks_with_minus_one: bool = False
    fuses_shared_experts: bool = False
    # Small batches of nvfp4 experts are left for a later kernel to finish.
    defers_finalising: bool = False
    # Its files carry the GPU's UUID where a release writes it.
    files_by_gpu: bool = False
    # --quantization as it takes it, since when; empty: nobody asks. srt/arg_groups/moe_hook.py
    takes: Mapping[str | None, Number] = field(default_factory=dict)
    # Experts are on one rank or on all: --ep is 1 or --tp.
    spread_over_one_or_all: bool = False
    # The only all-to-alls beside none that it knows, since when; empty: SGLang does not ask.
    all_to_alls: Mapping[str, Number] = field(default_factory=dict)
    under_flashinfer_a2a_since: Number | None = None
    # An explicit backend without mxfp8 is replaced under --quantization mxfp8.
    mxfp8_since: Number | None = None


def _all(names: Iterable[str | None]) -> dict[str | None, Number]:
    return dict.fromkeys(names, FIRST)


_BLACKWELL_SERVER = (10,)
_TRITON_KERNELS = "triton_backend:TritonBackend"
_TRTLLM_KERNELS = "flashinfer_trtllm:FlashInferTrtllmBackend"
_TRTLLM = MoEBackendRow(
    "flashinfer_trtllm",
    FIRST,
    _TRTLLM_KERNELS,
    "trtllm",
    kernel_majors=_BLACKWELL_SERVER,
    stood_in=False,
    marks_with_minus_one=True,
    defers_finalising=True,
    takes=_all(
        (
            *("modelopt_fp4", "fp8", "mxfp8", "modelopt_fp8", "modelopt_mixed", "compressed-tensors"),
            *("nvfp4_online", None),
        )
    ),
    under_flashinfer_a2a_since=(0, 5, 19),
    mxfp8_since=FIRST,
)
BACKENDS = {
    row.name: row
    for row in (
        MoEBackendRow("auto", kernels=_TRITON_KERNELS, stood_in=False),
        MoEBackendRow("triton", kernels=_TRITON_KERNELS, stood_in=False),
        MoEBackendRow("torch", stood_in=False),
        MoEBackendRow("cutlass", mxfp8_since=FIRST),
        MoEBackendRow(
            "deep_gemm",
            kernels="deep_gemm:DeepGemmBackend",
            is_predicted=True,
            under_flashinfer_a2a_since=(0, 5, 19),
            mxfp8_since=(0, 5, 16),
        ),
        MoEBackendRow(
            "flashinfer_cutlass",
            (0, 5, 13),
            "flashinfer_cutlass:FlashInferCutlassBackend",
            "cutlass",
            stood_in=False,
            ranged_by_chunk=True,
            fuses_shared_experts=True,
            takes=_all(("modelopt_fp4", "modelopt_fp8", "modelopt_mixed", None)),
            spread_over_one_or_all=True,
            under_flashinfer_a2a_since=FIRST,
        ),
        _TRTLLM,
        MoEBackendRow(
            "flashinfer_trtllm_routed",
            (0, 5, 13),
            _TRTLLM_KERNELS,
            "trtllm",
            kernel_majors=_BLACKWELL_SERVER,
            stood_in=False,
            routed=True,
            takes=_all(("fp8", "mxfp8", "modelopt_fp4", "nvfp4_online", None))
            | {"modelopt_mixed": (0, 5, 16), "minimax_m3_nvfp4": (0, 5, 23)},
            under_flashinfer_a2a_since=(0, 5, 15),
            mxfp8_since=FIRST,
        ),
        MoEBackendRow(
            "flashinfer_mxfp4",
            FIRST,
            "flashinfer_mxfp4:FlashInferMxfp4Backend",
            "mxfp4",
            own_majors=(9,),
        ),
        MoEBackendRow(
            "flashinfer_cutedsl",
            FIRST,
            calls="cutedsl",
            kernel_majors=_BLACKWELL_SERVER,
            takes=_all(("modelopt_fp4",)) | {"modelopt_mixed": (0, 5, 16), "nvfp4_online": (0, 5, 18)},
            spread_over_one_or_all=True,
            all_to_alls={"deepep": FIRST, "flashinfer": (0, 5, 13)},
            under_flashinfer_a2a_since=(0, 5, 13),
        ),
        MoEBackendRow("flashinfer_megamoe", (0, 5, 22), files_by_gpu=True, mxfp8_since=FIRST),
        MoEBackendRow("experimental_sgl_trtllm", takes=_TRTLLM.takes),
    )
}


def backend_row(name: str) -> MoEBackendRow:
    """What SGLang runs by kernels of its own, or nobody knows, has nothing that FlashInfer tunes."""
    return BACKENDS.get(name) or MoEBackendRow(name)


# Those that spread the experts over all TP ranks, whatever --ep says.
SPREADS_EXPERTS = frozenset((
    *("megamoe", "deepep", "mooncake", "nixl", "ascend_fuseep", "flashinfer", "mori"),
    *("pplx", "deepep_v2", "flashinfer_megamoe"),
))  # fmt: skip
