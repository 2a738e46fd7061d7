"""A whole warm from a record: searched, written for every rank, proven, and told as its schema says."""

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from runtime.record.calls import Call
from runtime.record.parts import CacheFile
from runtime.record.record import Record
from sgl_tune.cli.format import DocumentFormat, Format, sink
from sgl_tune.cli.out import Output
from sgl_tune.cli.pages import SCHEMA_VERSIONS
from sgl_tune.commands.warm_recorded import warmed_json
from sgl_tune.commands.warm_wishes import DeviceKind, ProofKind, Wishes
from sgl_tune.errors import WorkFailed
from sgl_tune.recorded.caches import readings_of
from sgl_tune.recorded.plan import RecordedPlan, Whose, plan_of
from sgl_tune.verify.by_server import Served
from sgl_tune.verify.environment import UNTOLD, Target
from sgl_tune.warm.devices import Devices
from sgl_tune.warm.story import Settings, warm_records
from tests.sgl_tune.schemas import schema_faults
from tests.warm.recorded.on_cpu import HOW
from tests.warm.recorded.test_planned import FOLDER, NAMED, asked, record

OUT = Output(sink(DocumentFormat.json, False))
SETTINGS = Settings(Devices("cpu", (), 2), 120, how=HOW)


def wishes(target: Target | None) -> Wishes:
    return Wishes(False, DeviceKind.cpu, 120, False, ProofKind.none, target, ())


def plan(calls: tuple[Call, ...], root: Path) -> RecordedPlan:
    made: Record = record(asked(tp_size=2))
    files = tuple(
        CacheFile(NAMED, f"/home/{FOLDER}/rank_tp{rank}_pp0_dp0.json", False, "autotune") for rank in range(2)
    )
    made = Record(**{**vars(made), "calls": calls, "files": files})
    return plan_of([made], Whose("demo", "org/demo", root, ("--model-path", "org/demo")), 1)


def printed(data: dict[str, Any]) -> Any:
    """The JSON document that `warm` prints of this."""
    stdout = StringIO()
    out = Output(Format.json, stdout, version=SCHEMA_VERSIONS["warm"])
    out.result(data, human=lambda: None)
    return json.loads(stdout.getvalue())


def test_workers_share_the_search_and_ranks_one_proven_file(calls: tuple[Call, ...], tmp_path: Path) -> None:
    made = plan(calls, tmp_path)
    warmed = warm_records(made, SETTINGS, OUT)
    paths = [tmp_path / path for path in made.caches[0].paths]
    assert warmed.is_good and len({path.read_bytes() for path in paths}) == 1 and len(paths) == 2
    entries = {key for key in json.loads(paths[0].read_text()) if key.startswith("(")}
    assert entries == {key for op in made.caches[0].ops for key in op.keys}
    told = printed(warmed_json(made, warmed, None))
    assert told["workers"] == 2
    assert schema_faults("warm", told) == []
    read = Served("m", made.records[0].asked.versions, made, readings_of(made.records, ()), ())
    assert schema_faults("warm", printed(warmed_json(made, warmed, read))) == []
    here = json.loads(paths[0].read_text())["_metadata"]
    foreign = Target({**here, "gpu": "another"}, "env.json")
    own: tuple[Target | None, ...] = (None, UNTOLD, Target(here, "env.json"))
    assert all(wishes(target).are_read(paths[:1], OUT) for target in own)
    assert not wishes(foreign).are_read(paths[:1], OUT)
    assert told["tuned"] == len(entries) and told["reused"] == 0 and told["exact"] is True


def test_a_plan_is_told_as_its_schema_says(calls: tuple[Call, ...], tmp_path: Path) -> None:
    told = printed(plan(calls, tmp_path).to_json())
    assert schema_faults("warm", told) == []
    assert [one["function"] for one in told["not_replayable"]] == ["demo:experts", "demo:unmarked"]


def test_a_failed_search_leaves_no_folder(calls: tuple[Call, ...], tmp_path: Path) -> None:
    other = plan((replace(calls[0], function="nowhere:f"),), tmp_path)
    with pytest.raises(WorkFailed, match=r"cannot be replayed.*the cache is as it was"):
        warm_records(other, replace(SETTINGS, devices=Devices("cpu", (), 1)), OUT)
    assert not list(tmp_path.iterdir())
