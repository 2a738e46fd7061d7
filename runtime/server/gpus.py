"""One row per GPU, and the function that chooses the GPU a command is about.

The first row of an architecture is its usual GPU.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from runtime.server.bounds import is_number
from runtime.server.errors import ConfigError
from runtime.server.nearest import meant
from runtime.server.units import MIB


@dataclass(frozen=True, slots=True)
class GpuModel:
    """A GPU. `memory_mib` is nvidia-smi's; `cuda_bytes` is what a process can use, if it is published."""

    name: str
    arch: str
    memory_mib: int
    cuda_bytes: int | None
    source: str

    @property
    def major(self) -> int:
        return arch_major(self.arch)

    @property
    def usable_bytes(self) -> int:
        """Return what a process can use. If it is not published, assume an H200's share of the memory."""
        return self.cuda_bytes or int(self.memory_mib * MIB * _USABLE_SHARE)


_USABLE_SHARE = 150_109_880_320 / (143_771 * MIB)
_LOGS = "nvidia-smi, published logs"
_OOM = "nvidia-smi and torch's out-of-memory messages ({}), published logs"
GPUS = (
    GpuModel("H200", "sm90", 143771, 150109880320, "nvidia-smi and cudaMemGetInfo, measured on one H200"),
    GpuModel("H100", "sm90", 81559, 84943715041, _OOM.format("79.11 GiB")),
    GpuModel("H100 NVL", "sm90", 95830, None, _LOGS),
    GpuModel("H20", "sm90", 97871, None, _LOGS),
    GpuModel("B200", "sm100", 183359, 191501854310, _OOM.format("178.35 GiB")),
    GpuModel("GB200", "sm100", 189471, None, _LOGS),
    GpuModel("B300", "sm103", 275040, None, _LOGS),
    GpuModel("GB300", "sm103", 284208, None, _LOGS),
    GpuModel("A100 80GB", "sm80", 81920, 85094039552, _OOM.format("79.25 GiB")),
    GpuModel("A100 40GB", "sm80", 40960, None, _LOGS),
    GpuModel("L40S", "sm89", 46068, None, _LOGS),
    GpuModel("L4", "sm89", 23034, None, _LOGS),
    GpuModel("RTX 4090", "sm89", 24564, None, _LOGS),
    GpuModel("RTX PRO 6000", "sm120", 97887, None, _LOGS),
    GpuModel("RTX 5090", "sm120", 32607, None, _LOGS),
)


CPU = GpuModel("CPU", "cpu", 0, None, "no GPU")
USUAL = GPUS[0]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The GPU. `assumed` says in words what the user did not say; every answer must repeat it."""

    gpu: GpuModel
    assumed: str | None = None


def gpu_for(name: str | None, arch: str | None, here: Sequence[GpuModel] = ()) -> Chosen:
    """Return the named GPU, else this machine's, else the usual GPU of the architecture."""
    if arch is not None and arch != CPU.arch and not arch_major(arch):
        raise ConfigError(f"--gpu {arch!r} is not a GPU's architecture", "write sm90, sm100, sm120 ...")
    if name is not None:
        named = find_gpu(name)
        if arch not in (None, named.arch):
            raise ConfigError(f"arch {arch}: the {named.name} is {named.arch}", "name one of them")
        return Chosen(named)
    if arch == CPU.arch:
        return Chosen(CPU)
    if here and arch in (None, here[0].arch):
        return Chosen(here[0])
    if arch is None:
        return Chosen(USUAL, f"no GPU here: {USUAL.name} ({USUAL.arch}) is assumed; --gpu names another")
    usual = next((gpu for gpu in GPUS if gpu.arch == arch), None)
    if usual is None:
        why = f"no GPU of {arch} is known: the memory of {USUAL.name} is assumed; --gpu names another"
        return Chosen(replace(USUAL, name=arch, arch=arch), why)
    return Chosen(usual, f"{usual.name} is assumed for {arch}; --gpu names another")


def find_gpu(name: str) -> GpuModel:
    """Find a GPU by its name as typed or as the driver reports it; case, spaces and dashes do not matter."""
    wanted = _plain(name)
    exact = [gpu for gpu in GPUS if _plain(gpu.name) == wanted]
    begun = {"".join(words) for words in accumulate([word] for word in _words(name))}
    reported = [
        gpu for gpu in GPUS if _plain(gpu.name) in begun or set(_words(gpu.name)) <= set(_words(name))
    ]
    found = exact or sorted(reported, key=lambda gpu: -len(gpu.name))
    if not found:
        names = [gpu.name for gpu in GPUS]
        raise ConfigError(
            f"no GPU named {name!r} is known", meant(name, names) or f"one of {', '.join(names)}"
        )
    return found[0]


def arch_major(arch: str) -> int:
    """Return 9 for `sm90`, 10 for `sm100`, and 0 for anything that is no GPU."""
    digits = arch.removeprefix("sm")
    return int(digits[:-1]) if is_number(digits) and 1 < len(digits) < 5 else 0


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower().removeprefix("nvidia") if letter.isalnum())


def _words(name: str) -> list[str]:
    """Return the words of a name: `NVIDIA A100-SXM4-80GB` includes those of `A100 80GB`."""
    return re.findall(r"[a-z0-9]+", name.lower().removeprefix("nvidia"))
