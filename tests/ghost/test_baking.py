"""A start on the ghost compiles for real: Triton's own store, filled without a GPU, is hit by the next."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.baking.baking import Baking
from runtime.ghost.gpus import gpus
from runtime.record.events import Event
from runtime.record.record import Record
from runtime.sglang.asking import Asked, Asker
from runtime.sglang.server_process import Request
from tests.ghost.c_running import BUILT
from tests.ghost.stock import Smallest
from tests.ghost.test_starts import CONFIG, FEW_GRAPHS

Baked = tuple[Record, list[Event], Path]


@pytest.fixture(scope="module")
def asker(smallest: Smallest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    """It has no CUDA toolkit, so that SGLang's own kernels cannot be made."""
    root = tmp_path_factory.mktemp("root")
    stores = {"TRITON_CACHE_DIR": str(root / "triton"), "TORCHINDUCTOR_CACHE_DIR": str(root / "inductor")}
    baking = Baking(root, root / "no-toolkit", None, stores, {}, jobs=2)
    asked = Asked(smallest.python, (smallest.packages,), gpus()["h200"], BUILT, baking=baking)
    with Asker(asked) as asker:
        yield asker


@pytest.fixture(scope="module")
def baked(asker: Asker, tmp_path_factory: pytest.TempPathFactory) -> Baked:
    model = tmp_path_factory.mktemp("model")
    (model / "config.json").write_text(json.dumps(CONFIG))
    return _bake(asker, model)


def _bake(asker: Asker, model: Path) -> Baked:
    told: list[Event] = []
    argv = ("--model-path", str(model), "--attention-backend", "triton", *FEW_GRAPHS)
    record = asker.ask(Request(argv), say=lambda event: told.append(event))
    return record, [event for event in told if event["event"] == "baked"], model


def _root(asker: Asker) -> Path:
    baking = asker._asked.baking
    assert baking is not None
    return baking.root


def test_every_kernel_of_the_record_is_in_tritons_store_under_its_key(asker: Asker, baked: Baked) -> None:
    record, _, _ = baked
    kernels = [one for one in record.kernels if one.library == "triton"]
    assert record.ending.how == "ready" and kernels
    for kernel in kernels:
        key = base64.b32encode(bytes.fromhex(kernel.digest)).decode().rstrip("=")
        (cubin,) = (_root(asker) / "triton" / key).glob("*.cubin")
        (told,) = [one for one in cubin.parent.glob("*.json") if not one.name.startswith("__grp__")]
        assert cubin.read_bytes().startswith(b"\x7fELF")
        assert json.loads(told.read_bytes())["hash"] == kernel.digest
        assert json.loads(told.read_bytes())["shared"] == kernel.shared


def test_what_launches_kernels_asks_for_the_drivers_library(asker: Asker, baked: Baked) -> None:
    launchers = list((_root(asker) / "triton").glob("*/__triton_launcher*.so"))
    assert launchers and all(b"libcuda.so.1\0" in one.read_bytes() for one in launchers)
    assert list((_root(asker) / "triton").glob("*/cuda_utils*.so"))


def test_a_kernel_that_could_not_be_compiled_is_told_with_its_reason(baked: Baked) -> None:
    failed = [event for event in baked[1] if event["why"]]
    assert failed and all("no-toolkit/bin/nvcc" in event["why"] for event in failed)
    assert {event["store"] for event in failed} == {"tvm-ffi"}


def test_the_next_start_compiles_nothing_of_it_again(asker: Asker, baked: Baked) -> None:
    stores = [_root(asker) / name for name in ("triton", "inductor")]
    before = {path: path.stat().st_mtime_ns for store in stores for path in store.rglob("*.*")}
    record, events, _ = _bake(asker, baked[2])
    assert record.ending.how == "ready" and len(events) == len(baked[1])
    assert {path: path.stat().st_mtime_ns for store in stores for path in store.rglob("*.*")} == before
