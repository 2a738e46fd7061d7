"""The phases of a start as data: what each spends its time on, and the store that could save it."""

from __future__ import annotations

from dataclasses import dataclass

from sgl_tune.server_log.marks import GRAPHS


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of a start. `depth`: decides between lines that overlap, because a compilation inside a
    capture is a compilation. `until`: for a phase without own lines: it ends at a line of these phases. If
    a line of another phase comes first, nothing is known."""

    name: str
    spent_on: str
    store: str | None = None
    depth: int = 1
    until: tuple[str, ...] = ()


_WITHIN, _COMPILING = 2, 3
_LOADS = ("communicator", "weights")


def _between(name: str, spent_on: str, *until: str) -> Phase:
    return Phase(name, spent_on, until=until)


PHASES = {
    phase.name: phase
    for phase in (
        _between("imports", "Python and SGLang imported, before the first line", "first line"),
        _between("arguments", "flags resolved, the model's config read", "arguments"),
        _between("setup", "imports, flags and the model's config, of a process that is no server", *_LOADS),
        _between("processes", "schedulers started, each imports SGLang again", *_LOADS),
        Phase("communicator", "torch.distributed, NCCL and the groups"),
        _between("model setup", "between the communicator and the weights", "weights"),
        Phase("weights", "the checkpoint read into the GPU"),
        _between("draft setup", "waiting for the other ranks, the draft's worker set up", *_LOADS),
        Phase("draft weights", "the draft model's checkpoint read into the GPU"),
        _between("kv pool", "sizes profiled, the KV cache allocated", "kv pool"),
        _between("attention backends", "attention backends and first uses before the graphs",
                 "tactics", "scheduler", *GRAPHS),
        Phase("tactics", "FlashInfer's tuner measures tactics", "tactics", _WITHIN),
        Phase("prefill graphs", "CUDA graphs of prefill captured"),
        Phase("decode graphs", "CUDA graphs of decode captured"),
        Phase("draft graphs", "CUDA graphs of the draft captured"),
        Phase("FlashInfer JIT", "nvcc builds FlashInfer's modules", "flashinfer-jit", _COMPILING),
        Phase("FlashInfer cubins", "cubins are downloaded", "flashinfer-cubins", _COMPILING),
        Phase("SGLang JIT", "SGLang's own kernels are built", "tvm-ffi", _COMPILING),
        Phase("Triton", "Triton compiles its kernels", "triton", _COMPILING),
        Phase("compilers", "compilers ran in a folder that names no store", None, _COMPILING),
        Phase("DeepGEMM", "DeepGEMM compiles its kernels for every M", "deep-gemm", _COMPILING),
        Phase("Inductor", "torch.compile compiles graphs", "inductor", _COMPILING),
        Phase("TileLang", "TileLang and Triton kernels of DeepSeek-V4 are built", "tilelang", _COMPILING),
        _between("scheduler", "the scheduler's own set-up",
                 "scheduler", "tactics", "kv pool", "http server", *GRAPHS),
        _between("http server", "the HTTP server starts", "http server", "ready"),
        _between("warm-up request", "the server asks itself for a first answer", "ready", "warm-up request"),
    )
}  # fmt: skip
UNEXPLAINED, SHOWN = "unexplained", {"tactics": "autotune"}  # as a prediction of memory names it, for people
