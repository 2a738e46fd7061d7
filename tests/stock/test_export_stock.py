"""Exported caches in the hands of FlashInfer: its reader of a managed store, its loader of a rank's file."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from flashinfer import autotune_v2
from flashinfer.autotune_cache import ManagedAutotuneCache
from flashinfer.autotuner import AutoTuner, autotune

from runtime.autotune.cpu import GEMM1, GEMM2
from runtime.autotune.cpu_clock import CpuSearchTuner
from runtime.autotune.record import record_asked
from sgl_tune.cache.folder import LeadsOut
from sgl_tune.cache.layouts.find import find_caches
from sgl_tune.export.source import read_source
from sgl_tune.export.store_writer import fields_of, write
from tests.runtime.tuned_layer import BUCKETS, Layer, installed
from tests.sgl_tune.cache.caches import cache_folder
from tests.sgl_tune.running import Ran, run_here
from tests.sgl_tune.schemas import told

OPS = (GEMM1, GEMM2)
ENTRIES = len(OPS) * len(BUCKETS)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both ranks of a cache that our search filled here."""
    folder = cache_folder(tmp_path_factory.mktemp("tuned"))
    ours = folder / "rank_tp0_pp0_dp0.json"
    with installed(CpuSearchTuner()), autotune(True, cache=str(ours)):
        Layer()()
    shutil.copy(ours, folder / "rank_tp1_pp0_dp0.json")
    return folder


def _content(folder: Path) -> tuple[dict[str, str], dict[str, Any]]:
    stage = read_source(find_caches(folder)[0]).stages[0]
    return dict(stage.environment), dict(stage.entries)


def _hits_of(tuner: AutoTuner) -> int:
    """Of a layer that asks for all buckets; a stock tuner has no clock here, so it can only look up."""
    with record_asked() as record:
        Layer()()
    assert not record.missed and tuner.stats.tuned_op_successful_configs == {}
    return record.hits


def test_a_store_is_flashinfers_own_and_serves_every_lookup(tuned: Path, tmp_path: Path) -> None:
    exported = told("export", tuned, "--to", "flashinfer-store", "-o", tmp_path / "store")
    assert (exported["entries"], exported["added"], exported["hits"], exported["notes"]) == (
        ENTRIES, ENTRIES, ENTRIES, [],
    )  # fmt: skip
    for mode in ("tune", "replay"):
        with installed(AutoTuner()), autotune_v2(mode=mode, cache_root=tmp_path / "store"):
            tuner = AutoTuner.get()
            assert len(tuner._managed_decoded) == ENTRIES, "all are in memory once the store is attached"
            assert _hits_of(tuner) == (ENTRIES if mode == "tune" else len(OPS))


def test_what_is_there_stays_but_for_the_same_keys(tuned: Path, tmp_path: Path) -> None:
    metadata, entries = _content(tuned)
    key = next(iter(entries))
    store = ManagedAutotuneCache(manifest=metadata, root=tmp_path)
    store.publish("('other', 'R', ((1,),), ())", "R", 7)
    store.publish(key, "CpuGroupedGemm", 99)
    written = write(tmp_path, metadata, entries)
    assert (written["added"], written["changed"]) == (ENTRIES - 1, 1)
    after = ManagedAutotuneCache(manifest=metadata, root=tmp_path)
    assert after.lookup("('other', 'R', ((1,),), ())").tactic == 7
    assert after.lookup(key).tactic == entries[key][1]


def test_each_file_of_vllms_serves_every_lookup(tuned: Path, tmp_path: Path) -> None:
    exported = told("export", tuned, "--to", "vllm", "-o", tmp_path / "hash", "--dp", 2)
    ranks = ("dp0_rank0", "dp0_rank1", "dp1_rank2", "dp1_rank3")
    names = [Path(path).name for path in exported["files"]]
    assert names == [f"autotune_configs_{rank}.json" for rank in ranks]
    for path in exported["files"]:
        with installed(AutoTuner()), autotune(True):
            assert AutoTuner.get().load_configs(path)
            assert _hits_of(AutoTuner.get()) == ENTRIES


def _refused(folder: Path, tmp_path: Path, **members: Any) -> Ran:
    document = json.loads((folder / "rank_tp0_pp0_dp0.json").read_text())
    document["_metadata"] = {**document["_metadata"], **members}
    path = cache_folder(tmp_path, key="0123456789abcdef") / "rank_tp0_pp0_dp0.json"
    path.write_text(json.dumps(document))
    return run_here("export", path, "--to", "flashinfer-store", "-o", tmp_path / "store")


def test_another_flashinfers_store_is_not_written_by_this_one(tuned: Path, tmp_path: Path) -> None:
    assert _refused(tuned, tmp_path, flashinfer_version="0.7.1").ends(2, "FlashInfer 0.7.1 tuned this cache")
    assert _refused(tuned, tmp_path, flashinfer_version="0.6.18").ends(2, "has no managed store")
    assert not (tmp_path / "store").exists()


def test_no_link_in_a_store_is_followed(tuned: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "v2").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LeadsOut):
        write(tmp_path / "store", *_content(tuned))
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize(
    "fields",
    [
        ("op", "R", ((1, 2), (0,)), ()),
        ("op", "R", ((1,),), (torch.bfloat16, torch.float8_e4m3fn, -1, 0.5, None, True, "x")),
        ("op", "R", ((1,),), (("nested", (torch.int8,)),)),
    ],
)
def test_the_fields_of_a_key_are_read_back(fields: tuple[Any, ...]) -> None:
    assert fields_of(str(fields)) == fields


@pytest.mark.parametrize(
    "key",
    ["", "x", "(1,", "('op', Kind.A)", "('op', torch.nn)", "__import__('os')", "(" * 5000, "('op',  1)"],
)
def test_a_key_of_other_things_has_no_fields(key: str) -> None:
    assert fields_of(key) is None
