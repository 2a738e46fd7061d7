"""The phases of a start as data: what each is spent on, and the store that could spare it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Phase:
    """`depth` decides between lines that overlap: a compilation inside a capture is a compilation."""

    name: str
    spent_on: str
    store: str | None = None
    depth: int = 1
    is_between: bool = False  # known by the lines around it, with none of its own

    @property
    def builds(self) -> bool:
        return self.store is not None


_STAGE, _WITHIN, _COMPILING = 1, 2, 3

PHASES = {
    phase.name: phase
    for phase in (
        Phase("imports", "Python and SGLang imported, before the first line", is_between=True),
        Phase("arguments", "flags resolved, the model's config read", is_between=True),
        Phase("processes", "schedulers started, each importing SGLang again", is_between=True),
        Phase("communicator", "torch.distributed, NCCL and the groups"),
        Phase("model setup", "between the communicator and the weights", is_between=True),
        Phase("weights", "the checkpoint read into the GPU"),
        Phase("draft weights", "the draft model's checkpoint read into the GPU"),
        Phase("kv pool", "sizes profiled, the KV cache allocated", is_between=True),
        Phase("attention backends", "attention backends and first uses before the graphs", is_between=True),
        Phase("tactics", "FlashInfer's tuner measures tactics", "tactics", _WITHIN),
        Phase("prefill graphs", "CUDA graphs of prefill captured"),
        Phase("decode graphs", "CUDA graphs of decode captured"),
        Phase("draft graphs", "CUDA graphs of the draft captured"),
        Phase("FlashInfer JIT", "nvcc builds FlashInfer's modules", "flashinfer-jit", _COMPILING),
        Phase("FlashInfer cubins", "cubins are downloaded", "flashinfer-cubins", _COMPILING),
        Phase("SGLang JIT", "SGLang's own kernels are built", "tvm-ffi", _COMPILING),
        Phase("DeepGEMM", "DeepGEMM compiles its kernels for every M", "deep-gemm", _COMPILING),
        Phase("Inductor", "torch.compile compiles graphs", "inductor", _COMPILING),
        Phase("TileLang", "TileLang and Triton kernels of DeepSeek-V4 are built", "tilelang", _COMPILING),
        Phase("scheduler", "the scheduler's own set-up, and a draft worker's", is_between=True),
        Phase("http server", "the HTTP server starts", is_between=True),
        Phase("warm-up request", "the server asks itself for a first answer", is_between=True),
    )
}
UNEXPLAINED = "unexplained"
