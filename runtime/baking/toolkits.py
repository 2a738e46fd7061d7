"""Where CUDA toolkits lie: in a server's own packages, where FlashInfer looks, or where pip put one."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

_TOP = re.compile(r"^#\$ TOP=(.+)$", re.MULTILINE)
_SECONDS = 30


def with_own(python: Path, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment with CUDA_HOME as the toolkit that was added with the server of this Python."""
    own = next(python.parents[1].glob("lib/python3*/site-packages/nvidia/cu*/bin/nvcc"), None)
    return environ if own is None else {**environ, "CUDA_HOME": str(own.parents[1])}


def homes(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the toolkits' folders, the first to use first."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if environ.get(name):
            yield Path(environ[name])
            return
    for entry in filter(Path.is_absolute, map(Path, sys.path)):
        yield from (
            one for one in sorted(entry.glob("nvidia/cu*"), reverse=True) if (one / "bin/nvcc").exists()
        )
    nvcc = shutil.which("nvcc", path=program_path(environ))
    if nvcc:
        yield _home_of(nvcc)
    if Path("/usr/local/cuda/bin/nvcc").exists():
        yield Path("/usr/local/cuda")


def _home_of(nvcc: str) -> Path:
    """Return the toolkit's folder. Use the path as FlashInfer does, because ninja compares it. If that is
    no toolkit, ask nvcc itself, because the path may be a link or a wrapper script."""
    home = Path(nvcc).parent.parent
    if (home / "include/cuda_runtime.h").exists():
        return home
    match = _TOP.search(output(nvcc, "--dryrun", "-x", "cu", os.devnull))
    return Path(match[1] if match else Path(nvcc).resolve().parent.parent).resolve()


def program_path(environ: Mapping[str, str]) -> str:
    own = str(Path(sys.executable).parent)
    return os.pathsep.join([environ.get("PATH", os.defpath), own])


def output(*words: str | Path) -> str:
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr
