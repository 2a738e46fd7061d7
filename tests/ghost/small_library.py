"""A small shared library with sections like those that nvcc fills with GPU code."""

import shutil
import subprocess
from pathlib import Path

import pytest

CC = shutil.which("cc")
needs_cc = pytest.mark.skipif(CC is None, reason="there is no C compiler")
_SOURCE = r"""
#include <stdlib.h>
__attribute__((section(".nv_fatbin"), used)) static const char fat[200000] = "GPU code that nobody runs";
__attribute__((section("__nv_relfatbin"), used)) static const char relocatable[50] = "more GPU code";
long __isoc23_strtol(const char *, char **, int);
int answer(void) { return 42 + (int)NUMBER; }
"""


def library(out: Path, number: str = "0", *flags: str) -> Path:
    """Compile `int answer()`, which returns 42 + `number`, a C expression."""
    assert CC is not None
    out.parent.mkdir(parents=True, exist_ok=True)
    source = out.with_suffix(".c")
    source.write_text(_SOURCE.replace("NUMBER", number))
    subprocess.run([CC, "-shared", "-fPIC", "-o", out, source, *flags], check=True)
    source.unlink()
    return out
