"""Two servers are compared by their records: arguments, keys of tactics, and the files that are here."""

from pathlib import Path
from typing import Any

from runtime.flashinfer.versions import HOT
from runtime.record.record import Record
from sgl_tune.explain.account import Account
from sgl_tune.explain.compare import ABSENT, Comparison
from sgl_tune.explain.survival import survivals
from sgl_tune.recorded.plan import RecordedPlan, Whose, plan_of
from tests.record.test_record import READY
from tests.sgl_tune.cache.caches import cache_folder, good
from tests.sgl_tune.cache.corpus import moe_entries
from tests.sgl_tune.explain.test_account import RESOLVED, SETTLED, STOPPED, TYPED, named, started
from tests.warm.recorded.test_planned import call

KEYS = tuple(moe_entries())


def tuned(key: str, runner: str) -> dict[str, Any]:
    lookup = {"op": "op", "runners": [runner], "keys": [[8, key]], "policy": list(HOT)}
    return {**call(key), "lookups": [lookup]}


TUNED = [tuned(key, choice[0]) for key, choice in moe_entries().items()]


def changed(**arguments: Any) -> dict[str, Any]:
    defaults = {**RESOLVED["defaults"], **dict.fromkeys(arguments)}
    return {**RESOLVED, "arguments": {**RESOLVED["arguments"], **arguments}, "defaults": defaults}


def compared(before: Record, after: Record) -> Comparison:
    return Comparison(Account(before, TYPED), Account(after, TYPED))


def test_equal_starts_differ_in_nothing_but_what_is_drawn() -> None:
    one = started(RESOLVED, SETTLED, STOPPED)
    seed = {**RESOLVED, "arguments": {**RESOLVED["arguments"], "random_seed": 8}}
    assert compared(one, started(seed, SETTLED, STOPPED)).differences == ()


def test_a_value_that_changed_has_both_and_a_new_argument_at_its_default_is_none() -> None:
    after = changed(page_size=64)
    after["arguments"]["brand_new"] = 1
    (found,) = compared(started(RESOLVED, STOPPED), started(after, STOPPED)).differences
    assert (found.name, found.before, found.after) == ("page_size", 1, 64)


def test_an_argument_that_one_server_does_not_have_is_named() -> None:
    (found,) = compared(started(RESOLVED, STOPPED), started(changed(brand_new=3), STOPPED)).differences
    assert (found.before, found.after) == (ABSENT, 3)


def test_a_second_server_that_refuses_is_quoted() -> None:
    refusal = started({"event": "refused", "text": "no such flag --tp", "type": "SystemExit"})
    found = compared(started(RESOLVED, SETTLED, STOPPED), refusal)
    assert "no such flag --tp" in found.says and found.to_json()["refused"] == "no such flag --tp"


def test_another_folder_and_other_keys_are_differences() -> None:
    other = {**SETTLED, "gate": {"tunes": True, "file": SETTLED["gate"]["file"].replace("typed", "two")}}
    before, after = started(RESOLVED, named("one"), SETTLED), started(RESOLVED, named("two"), other)
    found = {one.name: one for one in compared(before, after).differences}
    assert (found["key"].before, found["key"].after) == ("typed", "two") and "files" in found
    plans = plan(Path("/c"), "one", *TUNED), plan(Path("/c"), "one", *TUNED[1:])
    ops = Comparison(Account(before, TYPED), Account(before, TYPED), plans).differences
    assert [one.group for one in ops] == ["ops"] and ops[0].before["entries"] == len(KEYS)


def plan(root: Path, key: str, *events: dict[str, Any]) -> RecordedPlan:
    record = started(RESOLVED, named(key), *events, READY)
    return plan_of([record], Whose("m", "org/m", root), 1)


def fate(root: Path, key: str, *after: dict[str, Any]) -> tuple[str, ...]:
    mine = cache_folder(root).name
    found = survivals(plan(root, mine, *TUNED), plan(root, key, *after), "NVIDIA H200")
    return tuple(one.fate for one in found)


def test_files_survive_where_the_second_server_reads_them_and_finds_its_keys(tmp_path: Path) -> None:
    mine = cache_folder(tmp_path).name
    assert fate(tmp_path, mine, *TUNED) == ("is not there",)
    (cache_folder(tmp_path) / "rank_tp0_pp0_dp0.json").write_bytes(good())
    assert fate(tmp_path, mine, *TUNED) == ("survives",)
    assert fate(tmp_path, mine, *TUNED, call("('another', 'R', ((1,),), ())")) == ("survives in part",)
    assert fate(tmp_path, "0" * 16, *TUNED) == ("is tuned again",)
    assert fate(tmp_path, mine) == ("is not needed",)


def test_of_a_structure_only_the_parts_that_differ_are_shown() -> None:
    old, new = ({"decode": {"bs": [1, 2], "backend": kind}} for kind in ("full", "piecewise"))
    records = [started(changed(cuda_graph_config=value), STOPPED) for value in (old, new)]
    (found,) = compared(*records).differences
    assert found.name == "cuda_graph_config.decode.backend"
    assert (found.before, found.after) == ("full", "piecewise")
