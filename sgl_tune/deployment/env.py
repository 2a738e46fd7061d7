"""This machine as FlashInfer would describe it in a cache file, and what it does not describe."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass, field
from importlib import import_module

from sgl_tune.deployment.versions import Gpu, asked_driver, installed_libraries, installed_version, local_gpus


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """`metadata` is None where FlashInfer cannot be asked; `unknown` says in words what could not be told."""

    metadata: dict[str, str] | None
    arch: str | None
    driver: str | None
    torch: str | None
    sglang: str | None
    gpus: tuple[Gpu, ...]
    unknown: tuple[str, ...]
    libraries: dict[str, str] = field(default_factory=dict)


def take_fingerprint() -> Fingerprint:
    """Imports torch and FlashInfer, which takes seconds: only they know what they would write."""
    unknown = []
    metadata = None
    try:
        with contextlib.redirect_stdout(sys.stderr):  # stdout is for data, whatever an import likes to print
            metadata = import_module("flashinfer.autotuner")._collect_metadata()
    except Exception as error:  # whatever a broken installation raises is the answer, not a failure of ours
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        unknown.append(f"what FlashInfer would write: it cannot be imported here ({reason})")
    gpus = local_gpus() or _torch_gpus()
    if not gpus:
        unknown.append("the GPU: no driver answers here, so a server elsewhere will see other values")
    if metadata and "unknown" in metadata.values():
        names = ", ".join(name for name, value in metadata.items() if value == "unknown")
        unknown.append(f"FlashInfer itself writes 'unknown' for {names}")
    return Fingerprint(
        metadata,
        gpus[0].arch if gpus else None,
        driver_version(),
        _torch_version(),
        installed_version("sglang"),
        gpus,
        tuple(unknown),
        installed_libraries(),
    )


def _torch_version() -> str | None:
    try:
        return str(import_module("torch").__version__)
    except ImportError:
        return None


def _torch_gpus() -> tuple[Gpu, ...]:
    """For containers that were given the GPU but not nvidia-smi."""
    try:
        cuda = import_module("torch").cuda
    except ImportError:
        return ()
    found = [cuda.get_device_properties(index) for index in range(cuda.device_count())]
    return tuple(Gpu(p.name, f"sm{p.major}{p.minor}", p.total_memory >> 20, str(p.uuid)) for p in found)


def driver_version() -> str | None:
    lines = asked_driver("driver_version").split()
    return lines[0] if lines else None
