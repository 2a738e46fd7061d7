"""`sgl-tune export`: which files vLLM gets, and what is not exported. Stores need FlashInfer: tests/stock."""

import json
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.cache.record import serialise
from tests.sgl_tune.cache.caches import KEY, cache_folder, good, rank_names, write_ranks
from tests.sgl_tune.cache.corpus import HOT, TARGET, moe_entries, moe_key
from tests.sgl_tune.running import run, run_here
from tests.sgl_tune.schemas import told

WITHOUT_GPU = {name: value for name, value in TARGET.items() if name != "gpu"}


def _export(source: Path, folder: Path, *more: object) -> dict[str, Any]:
    data: dict[str, Any] = told("export", source, "--to", "vllm", "-o", folder, *more)
    return data


def test_each_rank_gets_the_file_that_flashinfer_would_save(tmp_path: Path) -> None:
    write_ranks(cache_folder(tmp_path), rank_names(tp=2))
    ran = run("export", KEY[:6], "--cache-dir", tmp_path, "--to", "vllm", "-o", tmp_path / "hash", "-q")
    assert ran.code == 0, ran.err
    files = [Path(line) for line in ran.out.splitlines()]
    assert [file.name for file in files] == [f"autotune_configs_dp0_rank{rank}.json" for rank in range(2)]
    assert {file.read_bytes() for file in files} == {good()}
    inspected = json.loads(run_here("inspect", tmp_path / "hash", "--format", "json").out)
    assert [cache["layout"] for cache in inspected["caches"]] == ["vllm"]
    verified = json.loads(run_here("verify", tmp_path / "hash", "--format", "json").out)
    assert [file["verdict"] for file in verified["files"]] == ["hit", "hit"]


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        (("--dp", 2), ["dp0_rank0", "dp0_rank1", "dp1_rank2", "dp1_rank3"]),
        (("--tp", 1, "--dp", 2), ["dp0_rank0", "dp1_rank1"]),
        (("--pp", 2), ["dp0_rank0", "dp0_rank1", "dp0_rank2", "dp0_rank3"]),
        (("--tp", 1, "--pp", 2, "--dp", 2), ["dp0_rank0", "dp1_rank2", "dp0_rank1", "dp1_rank3"]),
    ],
)
def test_vllm_numbers_replicas_first(flags: tuple[object, ...], names: list[str], tmp_path: Path) -> None:
    source = cache_folder(tmp_path)
    write_ranks(source, rank_names(tp=2))
    found = [Path(path).name for path in _export(source, tmp_path / "hash", *flags)["files"]]
    assert found == [f"autotune_configs_{name}.json" for name in names]


def test_what_is_there_stays_but_for_the_same_keys(tmp_path: Path) -> None:
    source, folder = cache_folder(tmp_path), tmp_path / "hash"
    write_ranks(source, rank_names(tp=2))
    folder.mkdir()
    there = {"('other', 'R', ((1,),), ())": ["R", 7, HOT], moe_key(1): ["MoERunner", 99, HOT]}
    (folder / "autotune_configs_dp0_rank0.json").write_bytes(serialise(TARGET, there))
    data = _export(source, folder)
    contents = {Path(path).read_bytes() for path in data["files"]}
    assert contents == {serialise(TARGET, {**there, **moe_entries()})}
    (folder / "autotune_configs_dp0_rank1.json").write_bytes(good({**TARGET, "gpu": "NVIDIA B200"}))
    assert run_here("export", source, "--to", "vllm", "-o", folder).ends(3, "NVIDIA B200")
    _export(source, folder, "--replace")


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"{", "not JSON"),
        (b"[]", "not an object"),
        (serialise(TARGET, {}), "holds no entry"),
        (good({**TARGET, "gpu": "*"}), "of gpu it says '*'"),
        (good(WITHOUT_GPU), "of gpu it says nothing"),
        (serialise({}, moe_entries()), "says nothing"),
        (good(**{moe_key(64): "ab"}), "is not [runner, tactic, policy]"),
        (good(**{moe_key(64): ["R", 1, HOT, 4]}), "is not [runner, tactic, policy]"),
        (good(**{moe_key(64): 4}), "a server dies of it"),
    ],
)
def test_what_no_server_would_load_is_not_exported(raw: bytes, says: str, tmp_path: Path) -> None:
    source = cache_folder(tmp_path)
    write_ranks(source, rank_names(tp=2), raw)
    for reader in ("vllm", "flashinfer-store"):
        ran = run_here("export", source, "--to", reader, "-o", tmp_path / "hash")
        assert ran.code == 1 and says in ran.err and not (tmp_path / "hash").exists(), ran.err


def test_ranks_that_differ_are_not_exported(tmp_path: Path) -> None:
    source = cache_folder(tmp_path)
    write_ranks(source, rank_names(tp=2))
    (source / "rank_tp1_pp0_dp0.json").write_bytes(serialise(TARGET, moe_entries((1,))))
    ran = run_here("export", source, "--to", "vllm", "-o", tmp_path / "hash")
    assert ran.code == 1 and "differs from rank_tp0_pp0_dp0.json" in ran.err


def test_wrong_usage_exits_with_2_and_a_reason(tmp_path: Path) -> None:
    source, folder = cache_folder(tmp_path), tmp_path / "hash"
    write_ranks(source, rank_names())
    write_ranks(cache_folder(tmp_path, key="0123456789abcdef"), rank_names())
    for arguments, says in (
        ((source, "--to", "vllm", "-o", folder), "one rank reads FlashInfer's managed store"),
        ((tmp_path, "--to", "vllm", "-o", folder), "2 caches are there"),
        ((source, "--to", "flashinfer-store", "-o", folder, "--tp", 2), "are for --to vllm"),
        ((source, "--to", "vllm", "-o", source / "rank_tp0_pp0_dp0.json"), "not a folder"),
        ((source, "--to", "sglang", "-o", folder), "--to"),
        ((folder, "--to", "vllm", "-o", folder), "no such file"),
    ):
        assert run_here("export", *arguments).ends(2, says)
