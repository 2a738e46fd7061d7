"""`prune --unusable` removes the files that harm any server, and none that another environment tuned."""

import json
from pathlib import Path

from sgl_tune.verify.environment import Target
from sgl_tune.verify.findings import UNUSABLE
from sgl_tune.verify.judge import Judge
from tests.sgl_tune.cache.caches import add_entry, cache_folder, good, managed_store, write_ranks
from tests.sgl_tune.cache.corpus import HOT, TARGET, build_corpus, moe_entries, moe_key, nested
from tests.sgl_tune.running import run

CORPUS = build_corpus(TARGET, moe_entries())
CONTENTS = {
    "good": good(),
    "nan": good(**{moe_key(1): ["MoERunner", float("nan"), HOT]}),
    **{
        name: CORPUS[name].raw
        for name in ("empty", "entry-null", "records-list", "other-gpu", "cudnn-unknown", "metadata-missing")
    },
}
BAD = {"empty", "entry-null", "nan", "records-list"}


def _ranks(root: Path) -> dict[str, Path]:
    """One file for each kind of content."""
    paths = write_ranks(cache_folder(root), [f"rank_tp{rank}_pp0_dp0.json" for rank in range(len(CONTENTS))])
    for path, raw in zip(paths, CONTENTS.values(), strict=True):
        path.write_bytes(raw)
    return dict(zip(CONTENTS, paths, strict=True))


def test_what_harms_any_server_goes_and_nothing_else(tmp_path: Path) -> None:
    paths = _ranks(tmp_path)
    dry = run("prune", tmp_path, "--unusable", "--dry-run", "--format", "json")
    (removal,) = json.loads(dry.out)["removed"]
    assert set(removal["files"]) == {str(paths[name]) for name in BAD} and not removal["whole"]
    assert all(path.exists() for path in paths.values())
    assert run("prune", tmp_path, "--unusable", "-y").code == 0
    assert {name for name, path in paths.items() if path.exists()} == paths.keys() - BAD


def test_a_good_cache_loses_nothing_whatever_machine_this_is(tmp_path: Path) -> None:
    (path,) = write_ranks(cache_folder(tmp_path), ["rank_tp0_pp0_dp0.json"], CORPUS["other-gpu"].raw)
    assert run("prune", tmp_path, "--unusable", "-y").ends(0, out="Nothing to remove") and path.exists()


def test_what_is_no_file_stays(tmp_path: Path) -> None:
    folder = cache_folder(tmp_path)
    write_ranks(folder, ["rank_tp0_pp0_dp0.json"])
    (folder / "rank_tp1_pp0_dp0.json").symlink_to("/etc/passwd")
    (folder / "rank_tp2_pp0_dp0.json").mkdir()
    assert run("prune", tmp_path, "--unusable", "-y").code == 0
    assert len(list(folder.glob("rank_*.json"))) == 3


def test_what_ends_a_reader_of_the_managed_store_goes_and_a_miss_stays(tmp_path: Path) -> None:
    store = managed_store(tmp_path)
    good = add_entry(store, "('op', 'R', ((1,),), ())", "R")
    bad = add_entry(store, "('op', 'R', ((2,),), ())", "R", "@")
    bad.write_bytes(bad.read_bytes().replace(b'"@"', nested(900)))
    fails = add_entry(store, "('op', 'R', ((4,),), ())", "R", {"tile": 1})
    miss = store / "entries" / "0.json"
    miss.write_text("no JSON")
    advice = [line for line in run("verify", tmp_path).out.splitlines() if "prune --unusable" in line]
    assert advice and run("prune", tmp_path, "--unusable", "-y").code == 0
    assert sorted(store.glob("entries/*")) == sorted([good, miss]) and not (bad.exists() or fails.exists())


def test_a_code_that_the_command_is_advised_for_is_what_it_removes(tmp_path: Path) -> None:
    paths = _ranks(tmp_path)
    judge = Judge(Target(None, "each file's own environment").in_folder("0.7.2"))
    told = {name: judge.judge(path, path.read_bytes()).findings for name, path in paths.items()}
    assert {name for name, findings in told.items() if UNUSABLE & {one.code for one in findings}} == BAD


def test_somebody_elses_file_is_not_told_to_be_deleted(tmp_path: Path) -> None:
    for words in (("/etc/passwd",), ("/etc/passwd", "-q")):
        ran = run("verify", *words)
        assert (ran.code, ran.out) == (2, "") and "/etc/passwd: not a cache file" in ran.err
    other = tmp_path / "package.json"
    other.write_text('{"name": "x", "scripts": {"a": "b"}}')
    assert run("verify", other).code == 2
