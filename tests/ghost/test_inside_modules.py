"""A missing module can be loaded. Calls of it are reported, and so is each answer that it has to invent."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runtime.flashinfer.inside import tuner
from runtime.ghost.inside import exceptions, honesty, library, modules, stream
from runtime.ghost.inside.answers import TACTICS
from runtime.ghost.inside.triton import driver
from runtime.sglang.inside import messages
from tests.ghost import test_inside_sources as sources

Events = Any


class NoGpu:
    """A library for a process without GPU tensors: it counts launches and answers nothing else."""

    launches = 0

    def runtime(self, name: str) -> Any:
        """Return the one function that is asked for: every address is on this GPU."""
        assert name == "cudaPointerGetAttributes"

        def attributes(out: Any, at: Any) -> None:
            out._obj.type = 2

        return attributes

    def launched(self) -> None:
        self.launches += 1


@pytest.fixture
def events() -> Iterator[Events]:
    """A function that returns what was reported so far."""
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    stream.open_stream(theirs)
    library._library = NoGpu()  # type: ignore[assignment]
    honesty.said.clear()

    def said(kind: str) -> list[dict[str, Any]]:
        try:
            data = os.read(ours, 1 << 20)
        except BlockingIOError:
            return []
        found = [json.loads(line) for line in data.splitlines()]
        return [one for one in found if one["event"] == kind]

    yield said
    stream._stream = library._library = None
    os.close(ours)
    os.close(theirs)


def _not_loaded(path: str) -> None:
    raise AssertionError(f"{path} was loaded")


def test_loading_a_module_that_is_not_there_is_no_finding(tmp_path: Path, events: Events) -> None:
    empty = tmp_path / "fused.so"
    empty.touch()
    modules._load(_not_loaded, empty)
    assert not events("inexact")


def test_calling_a_function_that_is_not_there_names_it(tmp_path: Path, events: Events) -> None:
    honesty.phase("autotune")
    stub = modules._load(_not_loaded, tmp_path / "fused.so")
    assert stub.run_moe(1) is None
    (one,) = events("inexact")
    assert (one["kind"], one["name"], one["phase"]) == ("module", "fused.run_moe", "autotune")


def test_a_file_that_tunes_without_a_module_is_named(events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flashinfer.ours", SimpleNamespace(__file__=tuner.__file__))
    honesty.said |= {("module", "m.size", "flashinfer/ours.py:7 make"), ("module", "n", "sglang/a.py:1 f")}
    tuner.Asked().tell()
    assert [(one["kind"], one["name"]) for one in events("inexact")] == [("tuner", "flashinfer.ours")]


def test_an_answer_that_had_to_be_given_is_named(events: Events) -> None:
    runner = modules.Stub("fused").init("bf16")
    assert type(runner).__name__ == "Module"  # a key of FlashInfer's holds it
    assert runner.get_tactic_num() == TACTICS
    assert [one["name"] for one in events("inexact")] == ["fused.init", "fused.init.get_tactic_num"]


def test_a_finding_is_said_once_for_each_place(events: Events) -> None:
    function = modules.Stub("fused").run
    for _ in range(3):
        function()
    assert len(events("inexact")) == 1


def test_a_harmless_function_is_not_said(events: Events) -> None:
    name = next(one.name for one in exceptions.HARMLESS if one.kind == "module" and "*" not in one.name)
    module, _, function = name.rpartition(".")
    getattr(modules.Stub(module), function)()
    assert not events("inexact")


def launching(tmp_path: Path) -> modules.Stub:
    """A module whose source shows that `run` only launches a kernel, and that `more` allocates."""
    path = sources.module(tmp_path, before="void more(tvm::ffi::TensorView out) { cudaMalloc(0, 1); }")
    with (path.parent / "cuda.cu").open("a") as file:
        file.write("TVM_FFI_DLL_EXPORT_TYPED_FUNC(more, more);\n")
    return modules._load(_not_loaded, path)  # type: ignore[no-any-return]


class Memory:
    """An object with the interface of a tensor."""

    def __init__(self, is_cuda: bool) -> None:
        self.is_cuda = is_cuda

    def data_ptr(self) -> int:
        return 0

    def is_contiguous(self) -> bool:
        return True

    nbytes = 0


def test_a_function_that_only_launches_kernels_is_not_said(tmp_path: Path, events: Events) -> None:
    assert launching(tmp_path).run_op(Memory(True), 1, 0.5, "text", [Memory(True), None]) is None
    assert not events("inexact") and library.library().launches == 1  # type: ignore[attr-defined]


def test_a_function_that_allocates_says_where(tmp_path: Path, events: Events) -> None:
    launching(tmp_path).more(Memory(True))
    found = events("inexact")
    assert [(one["name"], one["why"]) for one in found] == [
        ("made.more", "the module is not there, and its source allocates: op.cuh:2")
    ]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (Memory(False), "it was given memory of the host, which its host code may write"),
        ([Memory(False)], "it was given memory of the host, which its host code may write"),
        (object(), "it was given an object: object"),
        (1 << 40, "it was given an address as a number"),
    ],
)
def test_memory_that_none_can_forget_is_said(tmp_path: Path, events: Events, given: object, why: str) -> None:
    launching(tmp_path).run_op(Memory(True), given)
    assert [one["why"] for one in events("inexact")] == [f"the module is not there, and {why}"]


def test_the_host_half_is_loaded_where_the_module_was_not_built(tmp_path: Path, events: Events) -> None:
    half = tmp_path / "half.so"
    half.write_bytes(b"\x7fELF" + bytes(100))
    modules.hand_in({"fused_moe": str(half)})
    loaded = modules._load(lambda path: path, tmp_path / "fused_moe.so")
    said = events("module")
    assert loaded == str(half)
    assert [(one["name"], one["state"], len(one["digest"])) for one in said] == [("fused_moe", "half", 64)]


def test_a_module_that_does_not_load_is_a_stub_that_says_why(tmp_path: Path, events: Events) -> None:
    broken = tmp_path / "broken.so"
    broken.write_bytes(bytes(100))

    def load(path: str) -> None:
        raise OSError("GLIBC_2.38 is not here")

    assert isinstance(modules._load(load, broken), modules.Stub)
    said = events("module")
    assert said[0]["state"] == "stub" and "GLIBC_2.38" in said[0]["why"]


def test_a_function_of_a_runtime_of_its_own_is_named_when_it_is_called_and_not_before(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(
        sys.modules, "cuda.bindings.runtime", raising=False
    )  # this process's own stays as it is
    bindings = import_module("runtime.ghost.inside.bindings")

    def fails(*args: Any) -> tuple[int, None]:
        return 801, None

    runtime = SimpleNamespace(
        cudaMemPoolCreate=fails,
        cudaGetErrorString=fails,
        cudaStreamCaptureStatus=SimpleNamespace(
            cudaStreamCaptureStatusActive=1, cudaStreamCaptureStatusNone=0
        ),
    )
    bindings._runtime(runtime)
    assert not events("inexact")
    assert runtime.cudaMemPoolCreate(0) == (801, None) and runtime.cudaGetErrorString(1) == (801, None)
    assert [one["name"] for one in events("inexact")] == ["cuda.bindings.runtime.cudaMemPoolCreate"]


def test_a_copy_that_is_only_put_back_is_not_said(events: Events) -> None:
    with honesty.set_aside():
        honesty._heard(library.UNREAD, "copy to the host", 0, 8)
        honesty._heard(library.STUB, "cudaFrobnicate", 0, 0)
    assert [one["name"] for one in events("inexact")] == ["cudaFrobnicate"]
    honesty._heard(library.UNREAD, "copy to the host", 0, 8)
    assert [one["name"] for one in events("inexact")] == ["copy to the host"]


def test_things_only_read_stay_real(tmp_path: Path, events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten: list[object] = []
    monkeypatch.setattr(modules, "forget", lambda *values, mark: forgotten.extend(values))
    body = (
        "auto at = static_cast<const float*>(in.data_ptr()); auto to = static_cast<float*>(out.data_ptr());"
    )
    function = f"void copy(tvm::ffi::TensorView in, tvm::ffi::TensorView out) {{ {body} }}"
    path = sources.module(tmp_path, before=function, export="copy")
    given, made = Memory(True), Memory(True)
    modules._load(_not_loaded, path).run_op(given, made)
    assert forgotten == [made]


def test_a_file_of_this_project_is_no_place_in_the_server() -> None:
    assert honesty._short(messages.__file__) == honesty.INSIDE


def test_a_build_that_its_library_removes_once_it_is_loaded_was_read_before(tmp_path: Path) -> None:
    staging = shutil.copytree(sources.module(tmp_path).parent, tmp_path / ".staging-1")
    made = staging / "made.so"
    sources.verdict.judge(made)
    shutil.rmtree(staging)
    assert sources.verdict.doubt(made, "run_op") == ""


def test_triton_finds_its_helpers_by_either_of_its_names() -> None:
    module: Any = SimpleNamespace()
    driver._driver(module)
    for name in ("compile_module_from_src", "compile_module_from_file"):
        assert isinstance(getattr(module, name)("driver.c", name="cuda_utils"), driver.Compiled)
