"""`sgl-tune diff`: what it calls equal, what it calls different, and how it says so."""

import json
from pathlib import Path
from typing import Any

from sgl_tune.cache.manifest import Manifest
from sgl_tune.cache.record import serialise
from tests.sgl_tune.cache.corpus import HOT, TARGET, moe_entries, moe_key
from tests.sgl_tune.running import run


def _file(path: Path, entries: dict[str, Any] | None = None, **environment: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(serialise({**TARGET, **environment}, moe_entries() if entries is None else entries))
    return path


def _cache(folder: Path, *ranks: dict[str, Any]) -> Path:
    for rank, entries in enumerate(ranks):
        _file(folder / f"rank_tp{rank}_pp0_dp0.json", entries)
    return folder


def _json(*targets: object) -> tuple[int, Any]:
    ran = run("diff", *targets, "--format", "json")
    assert ran.err == ""
    return ran.code, json.loads(ran.out)


def test_the_same_content_is_equal_however_it_is_written(tmp_path: Path) -> None:
    a, b = _file(tmp_path / "a.json"), _file(tmp_path / "b.json")
    document = json.loads(b.read_bytes())
    b.write_text(json.dumps(dict(sorted(document.items(), reverse=True)), separators=(",", ":")))
    assert run("diff", a, b).ends(0, out="Equal: 14 entries")
    assert run("diff", a, b, "--format", "quiet").out == ""


def test_changes_are_listed_by_op_and_bucket(tmp_path: Path) -> None:
    changed = moe_entries()
    changed[moe_key(16)] = ["MoERunner", 99, HOT]
    changed[moe_key(8)] = ["MoERunner", 23, [*HOT[:3], "cold"]]
    del changed[moe_key(4096, "gemm2")]
    changed["('new', 'R', ((3, 4),))"] = ["R", 1]
    a, b = _file(tmp_path / "a.json"), _file(tmp_path / "b.json", changed, cudnn_version="90000")
    code, data = _json(a, b)
    (pair,) = data["pairs"]
    assert (code, data["schema_version"], data["equal"], pair["same"]) == (1, 1, False, 11)
    changed = [(c["op"], c["bucket"], c["a"][1], c["b"][1]) for c in pair["changed"]]
    op = "trtllm::fused_moe::gemm1"
    assert changed == [(op, 8, 23, 23), (op, 16, 24, 99)]
    assert pair["only_a"] == [moe_key(4096, "gemm2")] and pair["only_b"] == ["('new', 'R', ((3, 4),))"]
    assert pair["environment"] == {"cudnn_version": {"a": "91900", "b": "90000"}} and pair["others"] == {}
    out = run("diff", a, b).out
    assert out.startswith("Different: 11 the same, 2 changed, 1 only in A, 1 only in B\n")
    assert "only in A: trtllm::fused_moe::gemm2 128x1536x2048 128x2048x768: buckets 4096" in out
    assert "cudnn_version: 91900 in A, 90000 in B" in out


def test_caches_that_agree_are_one_table_whatever_their_ranks(tmp_path: Path) -> None:
    one, eight = _cache(tmp_path / "one", moe_entries()), _cache(tmp_path / "eight", *[moe_entries()] * 8)
    code, data = _json(one, eight)
    assert code == 0 and [pair["same"] for pair in data["pairs"]] == [14]


def test_ranks_that_differ_are_compared_one_by_one(tmp_path: Path) -> None:
    a = _cache(tmp_path / "a", moe_entries(), moe_entries(), moe_entries())
    b = _cache(tmp_path / "b", moe_entries(), moe_entries((1, 2)))
    code, data = _json(a, b)
    assert code == 1 and [pair["equal"] for pair in data["pairs"]] == [True, False]
    assert [Path(name).name for name in data["only_a"]] == ["rank_tp2_pp0_dp0.json"]
    out = run("diff", a, b).out
    assert "1 pair equal, 1 different" in out and "rank_tp1_pp0_dp0.json        4\n" in out


def test_whole_cache_directories_are_compared_by_relative_path(tmp_path: Path) -> None:
    for side, keys in (("a", ("11" * 8, "22" * 8)), ("b", ("22" * 8, "33" * 8))):
        for key in keys:
            _cache(tmp_path / side / "flashinfer" / "autotune" / "0.7.2" / "sm90" / key, moe_entries())
    code, data = _json(tmp_path / "a", tmp_path / "b")
    assert code == 1 and [pair["equal"] for pair in data["pairs"]] == [True]
    assert [Path(name).name for side in ("only_a", "only_b") for name in data[side]] == ["11" * 8, "33" * 8]


def test_what_cannot_be_compared_is_an_error(tmp_path: Path) -> None:
    good = _file(tmp_path / "a.json")
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "empty").mkdir()
    ran = run("diff", good, tmp_path / "bad.json")
    assert (ran.code, ran.out) == (1, "") and "bad.json: cannot be compared, not JSON" in ran.err
    assert run("diff", good, tmp_path / "gone").code == run("diff", good, tmp_path / "empty").code == 2


def _raced(folder: Path, entries: dict[str, Any], **races: dict[str, float]) -> Path:
    _cache(folder, entries)
    told = {moe_key(int(bucket[1:])): race for bucket, race in races.items()}
    (folder / "sgl-tune.json").write_bytes(Manifest(TARGET, races=told).to_bytes())
    return folder


def _with(**tactics: int) -> dict[str, Any]:
    return {
        **moe_entries(),
        **{moe_key(int(b[1:])): ["MoERunner", tactic, HOT] for b, tactic in tactics.items()},
    }


def _race(**behind: float) -> dict[str, float]:
    return {f'["MoERunner", {name[1:]}]': value for name, value in behind.items()}


def test_choices_that_were_equally_fast_are_noise(tmp_path: Path) -> None:
    a = _raced(tmp_path / "a", _with(b1=7, b2=7), b1=_race(t7=0.0, t8=0.004), b2=_race(t7=0.0, t8=0.05))
    b = _raced(tmp_path / "b", _with(b1=8, b2=8), b1=_race(t8=0.0, t7=0.009), b2=_race(t8=0.0, t7=0.001))
    code, data = _json(a, b)
    told = [
        (change["bucket"], round(change["apart"], 3), change["noise"])
        for change in data["pairs"][0]["changed"]
    ]
    assert told == [(1, 0.009, True), (2, 0.05, False)], "the search that saw more of a difference counts"
    assert (code, data["noise"], data["pairs"][0]["noise"]) == (1, False, False)
    said = run("diff", a, b, "--ignore-noise")
    assert said.code == 1 and "2 changed (1 by noise, 1% at most)" in said.out and "0.9%  noise" in said.out


def test_where_all_is_noise_a_script_may_ignore_it(tmp_path: Path) -> None:
    a = _raced(tmp_path / "a", _with(b1=7), b1=_race(t7=0.0, t8=0.004))
    b = _raced(tmp_path / "b", _with(b1=8))
    code, data = _json(a, b)
    assert (code, data["equal"], data["noise"]) == (1, False, True)
    assert run("diff", a, b, "--ignore-noise").code == 0
    other = _raced(tmp_path / "c", {**_with(b1=8), moe_key(64): ["MoERunner", 1, HOT]})
    assert run("diff", a, other, "--ignore-noise").code == 1, "an entry that one of them lacks is none"


def test_what_no_race_had_is_not_called_noise(tmp_path: Path) -> None:
    a = _raced(tmp_path / "a", _with(b1=7), b1=_race(t7=0.0, t9=0.001))
    b = _raced(tmp_path / "b", _with(b1=8), b2=_race(t8=0.0, t7=0.001))
    _, data = _json(a, b)
    assert [change["noise"] for change in data["pairs"][0]["changed"]] == [None] and not data["noise"]
    said = run("diff", a, b, "--ignore-noise")
    assert said.code == 1 and "APART" not in said.out
