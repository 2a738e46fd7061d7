"""`sgl-tune inspect` from outside: what it lists, filters and prints."""

import json
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.cache.manifest import Manifest
from sgl_tune.cache.record import serialise
from sgl_tune.cache.store import write_group
from tests.sgl_tune.cache.children import as_nobody
from tests.sgl_tune.cache.corpus import HOT, TARGET, build_corpus, moe_entries, moe_key
from tests.sgl_tune.running import run, run_here
from tests.sgl_tune.schemas import told

BIG, SMALL = "b166000000000000", "5a11000000000000"


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    name = "org/model-with-a-name"
    told = {"key_parts": (name,), "deployment": {"model_path": name}}
    _make_cache(tmp_path, BIG, moe_entries(), 8, "sm90", **told)
    gemm = {"('fp8_gemm', 'R', ((1, 16, 8),))": ["R", 1]}
    small = _make_cache(tmp_path, SMALL, gemm, 1, "sm100")
    os.utime(small / "rank_tp0_pp0_dp0.json", (time.time() - 40 * 86400,) * 2)
    return tmp_path


def _make_cache(root: Path, key: str, entries: Any, ranks: int, arch: str, **manifest: Any) -> Path:
    folder = root / "flashinfer" / "autotune" / "0.7.2" / arch / key
    paths = [folder / f"rank_tp{rank}_pp0_dp0.json" for rank in range(ranks)]
    write_group(paths, entries, TARGET, manifest=Manifest(TARGET, **manifest) if manifest else None)
    return folder


_json = partial(told, "inspect")


def test_the_table_has_a_line_per_cache_and_a_total(cache_dir: Path) -> None:
    ran = run("inspect", "--cache-dir", cache_dir)
    assert ran.code == 0 and ran.err == ""
    lines = ran.out.splitlines()
    big, small = (next(line for line in lines if line.startswith(key)) for key in (BIG, SMALL))
    assert big.split()[1:3] == ["tp0-7", "14"] and "yes" in big and big.endswith("org/model-with-a-name")
    assert "40 d" in small and small.split()[1:3] == ["tp0", "1"]
    assert lines[-1].startswith("2 caches, 9 files, ")


def test_json_is_the_contract(cache_dir: Path) -> None:
    data = _json("--cache-dir", cache_dir, BIG[:6])
    (cache,), version = data["caches"], data["schema_version"]
    place = {part: cache[part] for part in ("layout", "flashinfer", "arch", "key")}
    assert version == 1 and place == {"layout": "sglang", "flashinfer": "0.7.2", "arch": "sm90", "key": BIG}
    assert cache["agree"] is True and cache["manifest"]["deployment"]["model_path"] == "org/model-with-a-name"
    file = cache["files"][3]
    assert file["rank"] == {"tp": 3, "pp": 0, "dp": 0, "gpu": None}
    assert (file["entries"], file["environment"]) == (14, TARGET)
    assert cache["manifest"]["files"]["rank_tp3_pp0_dp0.json"] == file["digest"]
    assert Path(file["path"]).stat().st_size == file["bytes"]
    assert "contents" not in cache


def test_entries_are_listed_in_the_order_of_their_buckets(cache_dir: Path) -> None:
    (cache,) = _json("--cache-dir", cache_dir, BIG, "--entries", "--filter", "op=gemm2")["caches"]
    (entries,) = cache["contents"].values()
    assert [entry["bucket"] for entry in entries] == [1, 2, 4, 8, 16, 4096, 8192]
    names = {(entry["op"], entry["runner"]) for entry in entries}
    assert names == {("trtllm::fused_moe::gemm2", "MoERunner")}
    assert [entries[0][part] for part in ("tactic", "policy", "key")] == [40, HOT, moe_key(1, "gemm2")]
    text = run("inspect", "--cache-dir", cache_dir, BIG, "--entries").out
    assert text.count("trtllm::fused_moe::gemm1") == 7, "once, not once a rank"


def test_entries_show_what_was_measured(cache_dir: Path) -> None:
    told = {"best_ms": 0.02, "default_ms": 0.1, "runner_up": 0.034, "launches": 120}
    entries = {moe_key(1, "gemm2"): moe_entries()[moe_key(1, "gemm2")], moe_key(2, "gemm2"): ["MoERunner", 3]}
    _make_cache(cache_dir, "feed000000000000", entries, 1, "sm90", measured={moe_key(1, "gemm2"): told})
    text = run("inspect", "--cache-dir", cache_dir, "feed000000000000", "--entries").out
    first, second = (line.split() for line in text.splitlines() if "trtllm::fused_moe::gemm2" in line)
    assert first[-3:] == ["0.020", "5.00x", "3.4%"] and second[-3:] == ["-", "-", "-"]
    assert "AHEAD" in text and "AHEAD" not in run("inspect", "--cache-dir", cache_dir, BIG, "--entries").out


def test_quiet_is_paths_alone_and_no_second_format(cache_dir: Path) -> None:
    ran = run("inspect", "-q", "--cache-dir", cache_dir)
    assert [Path(line).name for line in ran.out.splitlines()] == [SMALL, BIG] and ran.err == ""
    both = run("inspect", "-q", "--format", "json", "--cache-dir", cache_dir)
    assert both.code == 2 and "-q and --format json are two formats" in both.err


@pytest.mark.parametrize(
    ("filters", "keys"),
    [
        (["size>1kB"], [BIG]),
        (["size<=1kB"], [SMALL]),
        (["age>30d"], [SMALL]),
        (["entries<10"], [SMALL]),
        (["entries=14"], [BIG]),
        (["ranks>=8"], [BIG]),
        (["arch=sm90"], [BIG]),
        (["arch!=sm90"], [SMALL]),
        (["flashinfer=0.7.2"], [SMALL, BIG]),
        (["flashinfer = 0.6.12"], []),
        (["op=fp8_gemm"], [SMALL]),
        (["op=gemm1", "bucket=8192"], [BIG]),
        (["bucket=3"], []),
        (["runner=MoERunner"], [BIG]),
        (["gpu=NVIDIA H200", "layout=sglang", "agree=yes"], [SMALL, BIG]),
        (["gpu=h200"], [SMALL, BIG]),
        (["gpu=H20"], []),
        (["model=model-with-a-name"], [BIG]),
        (["model=ORG/Model-with-a-name"], [BIG]),
        (["model=model"], []),
        (["model!=model-with-a-name"], [SMALL]),
        (["op=fused_moe"], [BIG]),
    ],
)
def test_filters_select_caches(cache_dir: Path, filters: list[str], keys: list[str]) -> None:
    options = [word for text in filters for word in ("--filter", text)]
    ran = run("inspect", "--cache-dir", cache_dir, "--format", "quiet", *options)
    assert [Path(line).name for line in ran.out.splitlines()] == keys


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("size", "is no comparison"),
        ("size>lots", "'lots' is not a size"),
        ("age>yesterday", "'yesterday' is not a time"),
        ("colour=red", "no field 'colour'"),
        ("arch>sm90", "can only be = or !="),
        ("entries>many", "'many' is not a number"),
        ("entries=" + "9" * 4301, "is not a number"),
        ("ranks>²", "is not a number"),
    ],
)
def test_a_filter_that_cannot_be_read_is_refused(text: str, said: str) -> None:
    assert run("inspect", "--filter", text).ends(2, said)


def test_what_deserves_a_remark(cache_dir: Path) -> None:
    folder = cache_dir / "flashinfer" / "autotune" / "0.7.2" / "sm90" / BIG
    (folder / "rank_tp3_pp0_dp0.json").write_bytes(serialise(TARGET, moe_entries((1,))))
    (folder / "rank_tp4_pp0_dp0.json").write_text("{")
    (folder / "sgl-tune.json").write_text("{}")
    for name in (".autotuner_x.tmp", ".sgl-tune.journal"):
        (folder / name).write_text("")
    (folder / "runs").mkdir()
    (folder / "runs" / "rank_tp0_pp0_dp0.1.2.json").write_text("{}")
    out = run("inspect", folder).out
    for remark in ("ranks differ", "rank_tp4_pp0_dp0.json: not JSON", "not a manifest", "1 temporary file",
                   "an interrupted write", "1 old run, 2 B"):  # fmt: skip
        assert remark in out
    assert _json(folder)["caches"][0]["agree"] is False


def test_broken_files_are_listed_and_never_stop_it(tmp_path: Path) -> None:
    corpus = build_corpus(TARGET, moe_entries())
    for name, case in corpus.items():
        (tmp_path / f"{name}.json").write_bytes(case.raw)
    (cache,) = _json(tmp_path, "--entries")["caches"]
    assert (cache["layout"], len(cache["files"])) == ("files", len(corpus))
    problems = {Path(file["path"]).stem: file["problem"] for file in cache["files"]}
    assert problems["truncated"] and problems["gzip"] and problems["top-level-list"] and not problems["good"]
    listed = tmp_path / "metadata-list.json"
    for words in ((tmp_path,), (tmp_path, "--entries"), (listed, "--filter", "gpu=h200")):
        ran = run("inspect", *words)
        assert ran.code == 0 and ran.err == ""


def test_a_managed_store_is_listed_with_its_broken_entries(tmp_path: Path) -> None:
    store = tmp_path / "v2" / "0123456789abcdef"
    (store / "entries").mkdir(parents=True)
    (store / "manifest.json").write_text(json.dumps({**TARGET, "cache_schema": "v2"}))
    for number, (key, (runner, tactic, policy)) in enumerate(moe_entries((1, 2)).items()):
        entry = {"key": key, "runner": runner, "tactic": tactic, "profiling_policy": policy}
        (store / "entries" / f"{number:024x}.json").write_text(json.dumps(entry))
    (store / "entries" / "bad.json").write_text('{"key": 7, "runner": "R", "tactic": 1}')
    lines = run("inspect", tmp_path).out.splitlines()
    assert [line.split()[2] for line in lines if line.startswith("0123")] == ["4"]
    (cache,) = _json(tmp_path, "--filter", "gpu=NVIDIA H200", "--entries")["caches"]
    assert sum(len(entries) for entries in cache["contents"].values()) == 4


@pytest.mark.parametrize(
    ("name", "content"),
    [("README.md", "# Caches\n"), ("hostname", "here\n"), ("env.json", '{"metadata": {}, "arch": "sm90"}')],
)
def test_a_file_that_is_no_cache_is_refused(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    ran = run("inspect", tmp_path / name)
    assert (ran.code, ran.out) == (2, "") and f"{name}: not a cache file" in ran.err


def test_a_key_needs_four_characters(cache_dir: Path) -> None:
    assert run("inspect", BIG[:3], "--cache-dir", cache_dir).ends(2, "at least 4 characters")
    assert run("inspect", BIG[:4], "--cache-dir", cache_dir).code == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become somebody else")
def test_what_cannot_be_read_has_no_age(tmp_path: Path) -> None:
    path = tmp_path / "rank_tp0_pp0_dp0.json"
    path.write_text("{}")
    path.chmod(0o600)
    run_here("inspect", tmp_path)  # imports what nobody may not read, where Python is root's own
    ran = as_nobody(tmp_path, lambda: run_here("inspect", tmp_path))
    assert ran.code == 0 and "unreadable (Permission denied)" in ran.out and " d " not in ran.out
