"""Whether a server runs FlashInfer's autotuner at its start: for its MoE backend, FP4 GEMMs or FP8 GEMMs."""

from typing import NamedTuple

from runtime.server.asked import Asked
from runtime.server.backends import backend_row
from runtime.server.errors import Unsupported
from runtime.server.gpus import CPU, GpuModel

MODELOPT_FP8 = ("modelopt", "modelopt_fp8")  # with one scale per tensor: FlashInfer runs their GEMMs
_TUNED_FP4 = ("flashinfer_cutlass", "flashinfer_cutedsl")


class Gate(NamedTuple):
    """Whether a server tunes (`tunes`), and the condition that decided (`because`)."""

    tunes: bool
    because: str


def gate(asked: Asked, backend: str, stored: str | None, gpu: GpuModel) -> Gate:
    """Return whether the worker tunes. `stored` is the quantization of its own model's weights."""
    if asked.disable_flashinfer_autotune:
        return Gate(False, "--disable-flashinfer-autotune is set, so that it loads no cache either")
    if gpu.arch != CPU.arch and gpu.major < 9:
        return Gate(False, f"SGLang tunes from compute capability 9.0 on: not on {gpu.arch}")
    if stored == "fp8" and gpu.major >= 10 and asked.fp8_gemm_runner_backend.startswith("flashinfer"):
        gemms = f"--fp8-gemm-backend {asked.fp8_gemm_runner_backend}"
        raise Unsupported(f"{gemms} with fp8 on {gpu.arch}: a server answers for it")
    if backend_row(backend).is_tuned:
        return Gate(True, f"MoE backend {backend}")
    if stored == "modelopt_fp4" and fp4_gemm_backend(asked, gpu) in _TUNED_FP4:
        return Gate(True, f"FP4 GEMMs of quantization {stored}")
    if stored in MODELOPT_FP8 and gpu.major in (9, 10, 12):
        return Gate(True, f"FP8 GEMMs of quantization {stored}")
    gemms = "unquantized GEMMs" if stored is None else f"GEMMs of quantization {stored}"
    return Gate(False, f"SGLang tunes no experts of MoE backend {backend}, and no {gemms}")


def fp4_gemm_backend(asked: Asked, gpu: GpuModel) -> str:
    """Return the backend that an unset --fp4-gemm-backend becomes: srt/layers/quantization/fp4_utils.py."""
    if asked.fp4_gemm_runner_backend != "auto":
        return asked.fp4_gemm_runner_backend
    if gpu.major == 10:
        return "flashinfer_cutedsl"
    return "marlin" if gpu.major < 10 else "flashinfer_cutlass"
