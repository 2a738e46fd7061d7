"""SGLang's own look-ups of its kernels and CuTe DSL's objects, over stores that are whole, damaged and moved.

    python -m tests.oracle.sglang_stores            # every release that keeps them so
    python -m tests.oracle.sglang_stores --record   # what the test holds our readers against

A wheel's cache module is run whole, in the oracle's interpreter; what it imports of SGLang is cut down to
where this machine's packages are. A start that would end is one whose look-up raises.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "recorded/sglang_stores.json"
CONTENT_KEYED = ("0.5.18", "0.5.20", "0.5.23")  # each another text of the module
OBJECTS = ("0.5.20", "0.5.23")
MODULE = "sgl_kernel_jit_norm"
NOBODY = 65534
Change = Callable[[Path], object]


def _rename(leaf: Path) -> None:
    leaf.rename(leaf.with_name("deps-0000000000000000"))


def _lost_times(leaf: Path) -> None:
    for path in (leaf, *leaf.iterdir()):
        os.utime(path, (9, 9))


LEAVES: dict[str, Change] = {
    "whole": lambda leaf: None,
    "all times lost": _lost_times,
    "no list": lambda leaf: (leaf / "sgl_deps.json").unlink(),
    "an empty list": lambda leaf: (leaf / "sgl_deps.json").write_text("[]"),
    "a list that is cut off": lambda leaf: (leaf / "sgl_deps.json").write_text('[["abs", "/'),
    "a list of something else": lambda leaf: (leaf / "sgl_deps.json").write_text("[1]"),
    "a list with a number": lambda leaf: (leaf / "sgl_deps.json").write_text('[["abs", "/a", 3]]'),
    "another name": _rename,
    "no library": lambda leaf: (leaf / f"{MODULE}.so").unlink(),
    "only staged": lambda leaf: leaf.rename(leaf.with_name(".staging-1")),
    "a source that changed": lambda leaf: _source(leaf).write_text("y"),
    "a source that is gone": lambda leaf: _source(leaf).unlink(),
    "a source of a place unknown": lambda leaf: None,
    "moved": lambda leaf: _elsewhere(leaf.parents[3]),
}


def _source(leaf: Path) -> Path:
    return leaf.parents[3].with_suffix(".cuh")


def _elsewhere(store: Path) -> None:
    """Gone and come back by a copy."""
    shutil.copytree(store, store.with_name("copy"))
    shutil.rmtree(store)
    store.with_name("copy").rename(store)


THINGS: dict[str, Change] = {
    "whole": lambda thing: None,
    "no lock": lambda thing: thing.with_suffix(".lock").unlink(),
    "empty": lambda thing: thing.write_bytes(b""),
    "moved": lambda thing: _elsewhere(thing.parents[2]),
}


def leaves(root: Path, make: Any) -> dict[str, Path]:
    found = {}
    digest = hashlib.sha256(b"x").hexdigest()
    for number, (name, change) in enumerate(LEAVES.items()):
        store = root / f"leaves{number}"
        source = store.with_suffix(".cuh")
        source.write_text("x")
        entry = ["pkg:other", "x"] if "unknown" in name else ["abs", str(source)]
        change(make.sglang_leaf(store, MODULE, [[*entry, digest]]))
        found[name] = store
    return found


def things(root: Path, make: Any) -> dict[str, Path]:
    found = {}
    for number, (name, change) in enumerate(THINGS.items()):
        store = root / f"things{number}"
        change(make.cute_object(store))
        found[name] = store
    return found


def leaf_answers(wheel: Path, stores: dict[str, Path]) -> dict[str, str]:
    module = _load(wheel / "sglang/kernels/jit/utils/compile/cache.py")
    answers = {}
    for name, store in stores.items():
        scope = store / "sm90a" / MODULE / "build-0123456789abcdef"
        module.clear_digest_cache()
        answers[name] = "hit" if module.find_prebuilt(scope=scope, module_name=MODULE) else "miss"
    return answers


def thing_answers(wheel: Path, stores: dict[str, Path], writable: bool) -> dict[str, str]:
    """Asked by somebody who may not write there, unless `writable`."""
    module = _load(wheel / "sglang/kernels/jit/cute_aot_cache.py")

    def load(path: Path, *_: Any) -> Any:
        if not path.read_bytes():
            raise ValueError("no object")
        return lambda: None

    module._load_object = load
    answers = {}
    for name, store in stores.items():
        (found,) = store.glob("*/*/*.o")
        cache = module.JITPersistentCache(found.parent)
        cache._key_to_hash = lambda key, stem=found.stem: stem
        ask = partial(cache.__contains__, ("k",))
        answers[name] = _in_a_fork(ask, None if writable else NOBODY)
    return answers


def _in_a_fork(ask: Callable[[], bool], uid: int | None) -> str:
    child = os.fork()
    if child == 0:
        try:
            if uid is not None:
                os.setuid(uid)
            os._exit(0 if ask() else 1)
        except BaseException:
            os._exit(2)
    return ("hit", "miss", "dies")[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]


def _load(file: Path) -> Any:
    """With what it imports of SGLang as little as it needs."""
    paths = {
        "arch": {"get_jit_cuda_arch": lambda: types.SimpleNamespace(major=9, minor=0, suffix="a")},
        "common": {
            "cache_once": lambda function: function,
            **{f"is_{kind}_runtime": lambda: False for kind in ("hip", "musa", "sail")},
        },
        "compile.toolchain": {"toolkit_home": lambda: None},
        "compile.paths": {"KERNEL_PATH": Path("/nowhere")},
        "compile.spec": {"BuildSpec": object},
    }
    given = {f"sglang.kernels.jit.utils.{name}": members for name, members in paths.items()}
    setting = types.SimpleNamespace(get=lambda: None)
    envs = types.SimpleNamespace(SGLANG_JIT_CACHE_DEBUG=setting, SGLANG_JIT_CACHE_DIR=setting)
    given["sglang.srt.environ"] = {"envs": envs}
    for name, members in given.items():
        module = types.ModuleType(name)
        vars(module).update(members)
        parent, _, own = name.rpartition(".")
        for above in (parent, parent.rpartition(".")[0], "sglang.kernels.jit", "sglang.kernels", "sglang"):
            sys.modules.setdefault(above, types.ModuleType(above))
        setattr(sys.modules[parent], own, module)
        sys.modules[name] = module
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def inside(unpacked: Path) -> dict[str, Any]:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from tests.sgl_tune.stores import make

    answers: dict[str, Any] = {"kernels": {}, "objects": {}, "objects, read-only": {}}
    for release in CONTENT_KEYED:
        with _folder() as folder:
            answers["kernels"][release] = leaf_answers(unpacked / release, leaves(folder, make))
    for release in OBJECTS:
        for writable in (True, False):
            with _folder() as folder:
                stores = things(folder, make)
                row = thing_answers(unpacked / release, stores, writable)
                answers["objects" if writable else "objects, read-only"][release] = row
    return answers


class _folder:
    def __enter__(self) -> Path:
        self.path = Path(tempfile.mkdtemp())
        self.path.chmod(0o755)
        return self.path

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            shutil.rmtree(self.path)


def main() -> None:
    from tests.oracle.wheels import WORK, interpreter

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    command = [str(interpreter(WORK)), __file__, str(WORK / "unpacked")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    print(done.stdout)
    if arguments.record:
        RECORDED.write_text(json.dumps(json.loads(done.stdout), indent=1) + "\n")


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        print(json.dumps(inside(Path(sys.argv[1]))))
    else:
        main()
