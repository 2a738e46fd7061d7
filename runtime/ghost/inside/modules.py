"""Modules that `tvm_ffi` loads: the real one if it exists, a host half of it, or a stub that says so."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from runtime.ghost.inside import honesty, small
from runtime.ghost.inside.answers import RUNNER, UNKNOWN, Answer, answer_of
from runtime.ghost.inside.arguments import cannot_follow
from runtime.ghost.inside.calls import outside_torch
from runtime.ghost.inside.hooks import after, around
from runtime.ghost.inside.library import DOUBTED, library
from runtime.ghost.inside.sources.verdict import doubt, judge, only_read
from runtime.ghost.inside.stream import say
from runtime.ghost.inside.values import forget

# A build that compiles nothing leaves files that are empty or have a few bytes.
SMALLEST = 64
# A module of this size has so many large kernels that loading them takes noticeable device memory.
LARGE = 32 << 20
_halves: dict[str, str] = {}


def hand_in(halves: dict[str, str]) -> None:
    """Use these files, by module name, if the real module was not built."""
    _halves.update(halves)


class Stub:
    """Replaces a missing module. Loading it changes nothing; a call that may matter is reported."""

    def __init__(self, name: str, path: Path | None = None) -> None:
        self._name, self._path = name, path
        self._functions: dict[str, Missing] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.get_function(name)

    def __getitem__(self, name: str) -> Missing:
        return self.get_function(name)

    def get_function(self, name: str, query_imports: bool = False) -> Missing:
        found = self._functions.get(name)
        if found is None:
            found = self._functions[name] = Missing(self._name, name, self._path)
        return found

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        return True


Stub.__name__ = "Module"  # tvm-ffi's class, whose name FlashInfer writes into the keys of tactics


class Missing:
    """Stands for a function of a missing compiled module."""

    def __init__(self, module: str, name: str, path: Path | None) -> None:
        self._module, self.__name__, self._path = module, name, path

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        answer = self._answer
        why = answer.why if answer is not None else self._doubt(args, kwargs)
        if why:
            honesty.inexact("module", f"{self._module}.{self.__name__}", why)
        library().launched()
        if small.runs():
            read = self._only_read
            may_change = (one for at, one in enumerate(args) if at not in read)
            forget(*may_change, *kwargs.values(), mark=DOUBTED)
        if answer is RUNNER:
            return Stub(f"{self._module}.{self.__name__}")
        return answer.give(*args) if answer is not None else None

    def _doubt(self, args: Any, kwargs: Any) -> str:
        """Return why this call may matter, or "" if it can only have launched kernels on its arguments."""
        if self._path is None:
            return UNKNOWN
        why = self._source_doubt or cannot_follow((*args, *kwargs.values()))
        return f"the module is not there, and {why}" if why else ""

    @cached_property
    def _answer(self) -> Answer | None:
        return answer_of(self._module, self.__name__)

    @cached_property
    def _source_doubt(self) -> str:
        return doubt(self._path, self.__name__) if self._path is not None else ""

    @cached_property
    def _only_read(self) -> Sequence[int]:
        return only_read(self._path, self.__name__) if self._path is not None else ()


@around("tvm_ffi.module", "Module.get_function")
def _get_function(get: Any, *args: Any, **kwargs: Any) -> Any:
    return outside_torch(get(*args, **kwargs))


@after("tvm_ffi")
def _tvm_ffi_itself(package: Any) -> None:
    package.load_module = package.module.load_module


@after("tvm_ffi.cpp.extension")
def _tvm_ffi_cpp(module: Any) -> None:
    import tvm_ffi.module

    module.load_module = tvm_ffi.module.load_module


@around("tvm_ffi.module", "load_module")
def _load(real: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
    path = Path(path)
    name, failed = path.stem, ""
    offered = {"real": path}
    if name in _halves:
        offered["half"] = Path(_halves[name])
    for state, file in offered.items():
        if not _is_library(file):
            continue
        try:
            loaded = real(str(file), *args, **kwargs)
        except Exception as error:
            failed = f": {str(error).splitlines()[0][:300]}" if str(error) else ""
            continue
        _tell(name, path, state, _digest(file), "")
        if file.stat().st_size > LARGE:
            library().appears("module", state == "half")
        return loaded
    _tell(name, path, "stub", "", failed)
    judge(path)
    return Stub(name, path)


def _is_library(file: Path) -> bool:
    try:
        return file.stat().st_size > SMALLEST
    except OSError:
        return False


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        digest = hashlib.sha256()
        while block := opened.read(1 << 20):
            digest.update(block)
        return digest.hexdigest()


def _tell(name: str, path: Path, state: str, digest: str, why: str) -> None:
    library = "flashinfer" if "flashinfer" in path.parts or ".cache/flashinfer" in str(path) else "tvm_ffi"
    if name.startswith("sgl_kernel"):
        library = "sglang"
    say("module", library=library, name=name, path=str(path), state=state, digest=digest, why=why)
