"""Find the SGLang, the FlashInfer and the GPUs of this machine without importing either."""

import os
import shutil
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

from runtime.server.bounds import is_number
from runtime.server.errors import ConfigError
from runtime.server.gpus import GPUS, GpuModel, find_gpu
from sgl_tune.errors import UsageError

DISTRIBUTIONS = {"sglang": "sglang", "flashinfer": "flashinfer-python"}
_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as its driver reports it."""

    name: str
    arch: str
    mib: int
    uuid: str = ""


def installed_version(package: str) -> str | None:
    if find_spec(package) is None:
        return None
    from importlib import metadata  # takes 1/7 of a file command's start

    try:
        return metadata.version(DISTRIBUTIONS[package])
    except metadata.PackageNotFoundError:
        return None


def require_flashinfer(version: str) -> None:
    """Refuse to tune or compile without the FlashInfer that will read the result."""
    installed = installed_version("flashinfer")
    if find_spec("torch") is None or installed is None:
        wanted = f"flashinfer-python=={version}"
        raise UsageError("this needs torch and FlashInfer", f"pip install 'sgl-tune[runtime]' {wanted}")
    if installed != version:
        said = f"the target reads caches of FlashInfer {version}, here is {installed}"
        raise UsageError(said, "install the target's version here")


def local_gpus() -> tuple[Gpu, ...]:
    """Return the GPUs that a process started here would see, in its order; none without a driver."""
    gpus = parse_gpus(asked_driver("name,compute_cap,memory.total,uuid"))
    return visible(gpus, os.environ.get("CUDA_VISIBLE_DEVICES"))


def visible(gpus: tuple[Gpu, ...], setting: str | None) -> tuple[Gpu, ...]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves, by torch's reading: numbers or prefixes of UUIDs,
    up to the first that matches no GPU; none if a GPU is named twice. MIG instances are not supported."""
    if setting is None:
        return gpus
    by_uuid = setting.startswith("GPU-")
    chosen: list[Gpu] = []
    for word in map(str.strip, setting.split(",")):
        if by_uuid:
            named = [gpu for gpu in gpus if word.startswith("GPU-") and gpu.uuid.startswith(word[4:])]
        else:
            named = list(gpus[int(word) :][:1]) if is_number(word) else []
        if len(named) != 1:
            break
        if named[0] in chosen:
            return ()
        chosen += named
    return tuple(chosen)


def torch_gpus() -> tuple[Gpu, ...]:
    """Return torch's GPUs, for containers that have a GPU but no nvidia-smi."""
    try:
        cuda = import_module("torch").cuda
    except ImportError:
        return ()
    found = [cuda.get_device_properties(index) for index in range(cuda.device_count())]
    return tuple(Gpu(p.name, f"sm{p.major}{p.minor}", p.total_memory >> 20, str(p.uuid)) for p in found)


def driver_version() -> str | None:
    lines = asked_driver("driver_version").split()
    return lines[0] if lines else None


def asked_driver(fields: str, *which: str) -> str:
    """Return nvidia-smi's answer, one line per GPU; "" if it does not answer."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    import subprocess  # not needed without a driver

    query = [program, f"--query-gpu={fields}", "--format=csv,noheader,nounits", *which]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout if answer.returncode == 0 else ""


def gpu_names() -> list[str]:
    """Return the names that completion offers for --gpu."""
    return [gpu.name.lower().replace(" ", "-") for gpu in GPUS]


def local_model(gpu: Gpu) -> GpuModel:
    """Return the table's row for this GPU, with its usable memory, else a row of its driver's report."""
    known = next((row for row in GPUS if row.memory_mib == gpu.mib and row.arch == gpu.arch), None)
    return known or GpuModel(
        gpu.name.removeprefix("NVIDIA "), gpu.arch, gpu.mib, None, "this machine's driver"
    )


def may_be(reported: str, name: str) -> bool:
    """Whether the GPU that a driver reports may be the GPU called `name`."""
    try:
        return find_gpu(reported).name == find_gpu(name).name
    except ConfigError:
        return True


def parse_gpus(table: str) -> tuple[Gpu, ...]:
    """Parse lines such as `NVIDIA H200, 9.0, 143771, GPU-6f...`. Lines with an unknown field are dropped."""
    gpus = []
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != 4 or not (is_number(cells[2]) and is_number(cells[1].replace(".", ""))):
            continue
        # torch, and so SGLang's file names, write a UUID without nvidia-smi's "GPU-".
        uuid = cells[3].removeprefix("GPU-")
        gpus.append(Gpu(cells[0], "sm" + cells[1].replace(".", ""), int(cells[2]), uuid))
    return tuple(gpus)
