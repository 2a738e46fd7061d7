"""DeepGEMM: its C++ code runs `nvcc` for each kernel. The ghost's `nvcc` writes its arguments to a file. At
the end of the start these files name the kernels, and a start that bakes runs the real `nvcc` with them."""

import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path

from runtime.baking.inside import aside
from runtime.ghost.inside.stream import say

WORDS = ".words"  # the arguments are stored beside the file that `nvcc` was to write, under its name and this


def watch() -> None:
    """Forget what an earlier start of this server compiled, so that this one asks for all that it needs. A
    start that bakes finds what is in its store."""
    aside.at_end(_tell_and_compile)
    for words in _asked():
        shutil.rmtree(words.parent, ignore_errors=True)
    cache, named = _cache(), aside.variable("SGLANG_DG_CACHE_DIR")
    if cache is not None and named:
        cache.mkdir(parents=True, exist_ok=True)
        for kernel in (Path(named) / "cache").glob("*"):
            with suppress(FileExistsError):
                (cache / kernel.name).symlink_to(kernel)


def _cache() -> Path | None:
    made = os.environ.get("DG_JIT_CACHE_DIR")
    return Path(made) / "cache" if made else None


def _asked() -> list[Path]:
    """Return what our `nvcc` wrote down."""
    cache = _cache()
    return sorted(cache.glob(f"*/*{WORDS}")) if cache is not None else []


def _tell_and_compile() -> None:
    named = aside.variable("SGLANG_DG_CACHE_DIR")
    store = Path(named)
    for words in _asked():
        say("kernel", library="deep-gemm", name=words.parent.name)
        if named:
            aside.compile_aside("deep-gemm", words.parent.name, partial(_compile, words, store))


def _compile(words: Path, store: Path) -> None:
    """Run the real `nvcc` with DeepGEMM's arguments, and name and place the result as DeepGEMM does."""
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
