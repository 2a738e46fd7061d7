"""What is said of an item, beside what its own library's look-up said of the same: recorded."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.cache.folder import open_folder
from sgl_tune.stores.item import Setting, setting_here
from sgl_tune.stores.readers.known import BY_STORE
from sgl_tune.stores.sources import Sources
from tests.oracle import sglang_stores
from tests.sgl_tune.stores import make
from tests.stock import inductor_move, triton_groups


def _said(store: str, place: Path, writable: bool = True) -> str:
    setting: Setting = setting_here(place)._replace(writable=writable, sources=Sources())
    with open_folder(place, place) as folder:
        (item,) = BY_STORE[store].items(folder, setting)
    kinds = {fault.kind for fault in item.faults}
    return "dies" if "kills" in kinds else "miss" if kinds else "hit"


def _sglang() -> Any:
    return json.loads(sglang_stores.RECORDED.read_text())


def test_triton_finds_what_is_said_to_be_found(tmp_path: Path) -> None:
    answers = json.loads(triton_groups.RECORDED.read_text())["answers"]
    ours = {name: _said("triton", store) for name, store in triton_groups.stores(tmp_path).items()}
    assert ours == answers and set(answers.values()) == {"hit", "miss", "dies"}
    assert (answers["moved"], answers["moved and mended"]) == ("miss", "hit")


@pytest.mark.parametrize(
    ("kind", "store", "writable", "stores"),
    [
        ("kernels", "tvm-ffi", True, sglang_stores.leaves),
        ("objects", "cute-dsl", True, sglang_stores.things),
        ("objects, read-only", "cute-dsl", False, sglang_stores.things),
    ],
)
def test_sglang_finds_what_is_said_to_be_found(
    kind: str, store: str, writable: bool, stores: Callable[..., dict[str, Path]], tmp_path: Path
) -> None:
    ours = {name: _said(store, place, writable) for name, place in stores(tmp_path, make).items()}
    recorded = _sglang()[kind]
    assert len(recorded) > 1 and all(answers == ours for answers in recorded.values())
    assert ours["moved"] == "hit"


def test_inductor_found_its_graphs_in_another_place() -> None:
    answers = json.loads(inductor_move.RECORDED.read_text())
    counted = {name: {what: n for what, n in row.items() if what != "torch"} for name, row in answers.items()}
    misses = {
        "fxgraph_cache_miss": 1,
        "autograd_cache_miss": 1,
        "fxgraph_cache_hit": 0,
        "autograd_cache_hit": 0,
    }
    hits = {what: 1 - n for what, n in misses.items()}
    assert counted == {"cold": misses, "moved": hits}


def test_a_list_that_names_what_is_no_source_is_neither_waited_for_nor_believed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in ("/proc/kmsg", "/dev/zero", str(tmp_path / "pipe"), str(tmp_path), "/a\0b", "/nowhere"):
        assert Sources().changed([["abs", path, "0" * 64]]) == f"abs:{path}"
