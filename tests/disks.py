"""A small or read-only disk for one test."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """Mount a tmpfs with its own `options`: size=64k, nr_inodes=40, ro."""
    folder.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
    if os.getuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a tmpfs needs rights")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
