"""DeepGEMM: its C++ code runs `nvcc` for each kernel. The ghost's `nvcc` writes down the words; at the end of
the start, the true one gets them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path

from runtime.baking.inside import aside

WORDS = ".words"  # after the name of the file that `nvcc` was to write


def _compile_left() -> None:
    made, named = os.environ.get("DG_JIT_CACHE_DIR"), aside.variable("SGLANG_DG_CACHE_DIR")
    if not made or not named:
        return
    cache, store = Path(made) / "cache", Path(named)
    for words in sorted(cache.glob(f"*/*{WORDS}")):
        if not (store / "cache" / words.parent.name / "kernel.cubin").exists():
            aside.compile_aside("deep-gemm", words.parent.name, partial(_compile, words, store))


def _compile(words: Path, store: Path) -> None:
    """Give the true `nvcc` the words that DeepGEMM gave, and keep the folder as DeepGEMM does."""
    made = words.with_name(words.name.removesuffix(WORDS))
    (store / "cache").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=store, prefix=".baking-") as temporary:
        folder = Path(temporary) / words.parent.name
        shutil.copytree(words.parent, folder, ignore=shutil.ignore_patterns(f"*{WORDS}", made.name))
        asked = words.read_text().split("\0")[:-1]
        was = str(Path(next(word for word in asked if word.endswith(f"/{made.name}"))).parent)
        command = ["nvcc", *(word.replace(was, str(folder)) for word in asked)]
        subprocess.run(command, check=True, cwd=folder)
        folder.rename(store / "cache" / folder.name)


aside.at_end(_compile_left)
