"""Compilations are noticed where they happen: FlashInfer's own ninja, and compilers that anybody starts."""

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.warm.compilations import counted
from sgl_tune.warm.proof import Forward, Proof

SOURCE = (
    "template <int n> struct A { A<n - 1> a; }; template <> struct A<0> {}; A<900> a;\n#include <regex>\n"
)
BUILD = "rule make\n  command = touch $out\nbuild {folder}/norm.so: make\n"


def test_what_flashinfer_builds_counts_and_what_it_finds_fresh_does_not(tmp_path: Path) -> None:
    core: Any = pytest.importorskip("flashinfer.jit.core")
    folder = tmp_path / "norm"
    folder.mkdir()
    (folder / "build.ninja").write_text(BUILD.format(folder=folder))
    own = core.run_ninja
    told = []
    for _ in range(2):
        with counted() as seen:
            core.run_ninja(folder, folder / "build.ninja", False)
        told.append(seen.of_a_server)
    assert told == [["FlashInfer JIT norm"], []]
    assert core.run_ninja is own


@pytest.mark.skipif(shutil.which("c++") is None, reason="c++ is not installed")
def test_a_compiler_that_somebody_starts_is_seen(tmp_path: Path) -> None:
    source = tmp_path / "tilelang.cpp"
    source.write_text(SOURCE)
    limit = time.monotonic() + 30
    with counted() as seen:
        while not seen.others and time.monotonic() < limit:
            began = time.monotonic()
            subprocess.run(["c++", "-c", source, "-o", tmp_path / "a.o"], timeout=30)
            if time.monotonic() - began > 0.5:
                break
    assert seen.of_a_server == ["TileLang"]


def test_no_compilation_is_seen_where_none_is() -> None:
    with counted() as seen:
        subprocess.run([sys.executable, "-S", "-c", "import time; time.sleep(0.3)"], timeout=30)
    assert seen.of_a_server == [] and not seen.triton


@pytest.mark.parametrize(
    ("forward", "is_good"), [("tuned", False), ("captured", False), ("untuned", True), ("none", True)]
)
def test_a_kernel_that_a_server_would_wait_for_spoils_the_proof(forward: str, is_good: bool) -> None:
    compiled = {
        name: ["FlashInfer JIT norm"] * (name == forward) for name in ("tuned", "untuned", "captured")
    }
    proof = Proof(4, 4, (), (), {}, 0.1, Forward(8, 1.0, 2.0, 2.0, 9, True), compiled, 0, None)
    assert proof.is_good is is_good
