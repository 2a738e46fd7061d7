"""A root of Triton configurations: written beside the server's own files, and known to every verb."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.config_files.contents import contents
from sgl_tune.config_files.names import beside, config_name, triton_of
from sgl_tune.config_files.provenance import SCHEMA, Bucket, Provenance, provenance
from sgl_tune.config_files.root import Tuned, own_files, write_root
from sgl_tune.pins.lock import NAME as LOCK
from sgl_tune.pins.lock import write_lock
from tests.sgl_tune.running import run_here
from tests.sgl_tune.schemas import schema_faults
from tests.sgl_tune.stores.make import write

ENTRY = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1}
NAME = "E=8,N=64,device_name=NVIDIA_H200.json"
DOWN = NAME.replace(".json", "_down.json")
BLOCK = "E=8,N=64,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json"
H200 = Provenance(SCHEMA, "NVIDIA H200", "3.6.0", "0.5.17", "", {"measure": 9.5}, {})


def server_files(folder: Path) -> Path:
    write(folder / "README.md", "made by hand")
    write(folder / "silu_and_mul_sm_90.json", {})
    for version, names in {"3_1_0": (NAME, BLOCK), "3_6_0": (BLOCK,)}.items():
        for name in names:
            write(folder / f"triton_{version}" / name, {"1": {**ENTRY, "num_warps": 8}})
    return folder


def tuned(name: str, **changed: int) -> Tuned:
    buckets = {"1": Bucket(0.2, 0.1, 2.0, True), "64": Bucket(0.4, 0.4, 1.0, False)}
    return Tuned(name, {64: ENTRY, 1: {**ENTRY, **changed}}, replace(H200, buckets=buckets))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    source = server_files(tmp_path / "package/configs")
    (made, _) = write_root(tmp_path / "cache/moe_configs", source, [tuned(NAME), tuned(DOWN)])
    assert made == tmp_path / "cache/moe_configs/configs/triton_3_6_0" / NAME
    return tmp_path / "cache"


def ran(code: int, *words: object) -> Any:
    done = run_here(*words, "--format", "json")
    assert done.code == code, done.out + done.err
    return json.loads(done.out)


def test_a_root_holds_the_servers_files_and_the_tuned_ones(cache: Path, tmp_path: Path) -> None:
    source, root = tmp_path / "package/configs", cache / "moe_configs/configs"
    for file in own_files(source):
        assert (root / file.relative_to(source)).read_bytes() == file.read_bytes()
    raw = (root / "triton_3_6_0" / NAME).read_bytes()
    assert list(contents(raw).entries) == [1, 64], "the first of two that are as near is taken"
    told = provenance((root / "triton_3_6_0" / beside(NAME)).read_bytes())
    assert told is not None and told.says == "1 of 2 batch sizes changed, 2.00 to 2.00x faster"
    int4 = config_name("E=128,N=384,device_name=NVIDIA_H200,dtype=int4_w4a16_down.json")
    assert int4 is not None and int4.is_down and int4.rest == ",dtype=int4_w4a16" and int4.gpu == H200.gpu
    assert not config_name(beside(NAME)) and not triton_of(beside(NAME))


def test_a_later_copy_leaves_what_was_tuned_and_takes_what_is_changed(cache: Path, tmp_path: Path) -> None:
    source, root = tmp_path / "package/configs", cache / "moe_configs"
    write(source / "triton_3_6_0" / NAME, {"8": ENTRY})
    write(source / "triton_3_6_0" / BLOCK, {"9": ENTRY})
    write_root(root, source, [])
    assert set(contents((root / "configs/triton_3_6_0" / NAME).read_bytes()).entries) == {1, 64}
    assert set(contents((root / "configs/triton_3_6_0" / BLOCK).read_bytes()).entries) == {9}


def test_inspect_lists_the_margins(cache: Path) -> None:
    (store,) = ran(0, "inspect", cache, "--store", "moe-configs")["stores"]
    notes = {Path(one["path"]).name: one["note"] for one in store["entries"]}
    assert notes[NAME] == "1 of 2 batch sizes changed, 2.00 to 2.00x faster" and notes[BLOCK] is None
    assert store["versions"] == {"GPU": ["NVIDIA H200"], "triton": ["3.6.0"]}


@pytest.mark.parametrize(
    ("raw", "status", "code", "said"),
    [
        (b'{"1": {', 1, "store-kills-start", "not JSON, or cut off"),
        (b"{}", 0, "store-stale", "untuned default"),
        (b'{"1": {"BLOCK_SIZE_M": 16}}', 1, "store-kills-start", "lacks BLOCK_SIZE_N"),
    ],
)
def test_verify_names_what_is_broken(cache: Path, raw: bytes, status: int, code: str, said: str) -> None:
    (cache / "moe_configs/configs/triton_3_6_0" / NAME).write_bytes(raw)
    told = ran(status, "verify", cache, "--store", "moe-configs")
    found = [one for file in told["files"] for one in file["findings"]]
    assert any(one["code"] == code and said in one["message"] for one in found), found


@pytest.mark.parametrize(
    ("make", "code", "said"),
    [
        (os.mkfifo, "store-kills-start", "no regular file"),
        (os.mkdir, "store-kills-start", "no regular file"),
        (lambda path: path.symlink_to(__file__), "not-readable", "a link, which a server follows"),
        (lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_RDWR), 1 << 40), "not-readable", "1.1 TB"),
    ],
)
def test_what_is_no_small_file_is_named_and_the_others_are_judged(
    cache: Path, make: Callable[[Path], None], code: str, said: str
) -> None:
    path = cache / "moe_configs/configs/triton_3_6_0" / NAME
    path.unlink()
    make(path)
    told = ran(1, "verify", cache, "--store", "moe-configs")
    found = [one for file in told["files"] for one in file["findings"]]
    assert [(one["code"], said in one["message"]) for one in found] == [(code, True)]
    assert [file["verdict"] for file in told["files"]].count("hit") == 6
    for rule in ("--stale", "--older-than=30d"):
        assert ran(0, "prune", cache, "--store", "moe-configs", rule, "-y")["removed"] == []


def test_prune_takes_tuned_files_of_an_older_triton_alone(cache: Path) -> None:
    root = cache / "moe_configs"
    newer = tuned(NAME)
    write_root(root, None, [replace(newer, told=replace(newer.told, triton="3.8.0", sglang="0.5.23"))])
    gone = ran(0, "prune", cache, "--store", "moe-configs", "--stale", "-y")["removed"]
    assert {Path(one["path"]).name for one in gone} == {NAME, DOWN}
    assert not (root / "configs/triton_3_6_0" / beside(NAME)).exists()
    assert (root / "configs/triton_3_1_0" / NAME).exists() and (root / "configs/triton_3_8_0" / NAME).exists()


def test_diff_compares_roots_and_files(cache: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write_root(other, tmp_path / "package/configs", [tuned(NAME, num_stages=4)])
    told = ran(1, "diff", cache / "moe_configs", other)
    assert told["only_a"] == [f"triton_3_6_0/{DOWN}"] and not told["equal"]
    (pair,) = [pair for pair in told["pairs"] if not pair["equal"]]
    assert pair["same"] == 1 and [one["bucket"] for one in pair["changed"]] == [1]
    file = cache / "moe_configs/configs/triton_3_6_0" / NAME
    assert ran(0, "diff", file, file.with_name(DOWN))["equal"]


def test_a_bundle_carries_the_root_and_a_lock_knows_it(cache: Path, tmp_path: Path) -> None:
    lock, bundle = write_lock(cache), tmp_path / "a.tar.gz"
    assert lock == cache / LOCK
    assert json.loads(lock.read_text())["environment"]["triton"] == "3.6.0"
    ran(0, "pack", cache, "--store", "moe-configs", "-o", bundle)
    ran(0, "unpack", bundle, "--cache-dir", tmp_path / "node", "--lock", lock)
    there = tmp_path / "node/moe_configs/configs/triton_3_6_0" / NAME
    assert there.read_bytes() == (cache / "moe_configs/configs/triton_3_6_0" / NAME).read_bytes()
    assert ran(0, "verify", tmp_path / "node", "--lock", lock)["differences"] == []
    there.write_bytes(there.read_bytes().replace(b"64", b"32"))
    told = ran(1, "verify", tmp_path / "node", "--lock", lock)
    assert schema_faults("verify-lock", told) == []
    assert told["differences"] == [f"moe_configs/configs/triton_3_6_0/{NAME}: differs"]
    ran(0, "pack", tmp_path / "node", "--store", "moe-configs", "-o", tmp_path / "b.tar.gz")
    os.mkfifo(there.with_name(DOWN.replace("E=8", "E=9")))
    assert run_here("verify", tmp_path / "node", "--lock", lock).ends(2, "is no regular file")
    refused = run_here("unpack", tmp_path / "b.tar.gz", "--cache-dir", tmp_path / "third", "--lock", lock)
    assert refused.code == 1 and "not the bundle of" in refused.err and not (tmp_path / "third").exists()


@pytest.mark.parametrize(
    "name",
    [
        "moe_configs/configs/triton_3_6_0/E=9,N=64,device_name=NVIDIA_H200.json",
        "moe_configs/configs/triton_3_8_0",
        "flashinfer/autotune/0.7.2/sm90/0123456789abcdef/rank_tp0_pp0_dp0.json",
        "flashinfer",
    ],
)
def test_a_lock_does_not_hold_over_what_is_read_by_a_link(cache: Path, tmp_path: Path, name: str) -> None:
    lock = write_lock(cache)
    assert ran(0, "verify", cache, "--lock", lock)["ok"]
    behind = write(tmp_path / "behind.json", {}) if name.endswith(".json") else tmp_path
    (cache / name).parent.mkdir(parents=True, exist_ok=True)
    (cache / name).symlink_to(behind)
    told = ran(1, "verify", cache, "--lock", lock)
    assert told["differences"] == [f"{name}: no regular file, so no lock can pin it"]
