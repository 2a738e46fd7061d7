"""Several deployments in one `warm`, each with an ending of its own."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.cache.layouts.cache import LOCK
from tests.sgl_tune.cache.caches import good
from tests.sgl_tune.schemas import schema_faults
from tests.warm.processes import children_of, command_of, runs, tree_of, until
from tests.warm.test_warm import MODEL, SECONDS, _end, _rank_files
from tests.warm.test_warm import _start as start_warm

SMALL = """
arch = "cpu"
moe-runner-backend = "flashinfer_cutlass"
chunked-prefill-size = 16
max-running-requests = 16
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(MODEL))
    (tmp_path / "scratch").mkdir()
    return tmp_path


def _write(project: Path, **deployments: str) -> None:
    text = [f'[defaults]\nmodel-path = "{project / "model"}"{SMALL}']
    text += [f"[deployments.{name}]\n{lines}" for name, lines in deployments.items()]
    (project / "sgl-tune.toml").write_text("\n".join(text))


def _start(project: Path, *arguments: str) -> subprocess.Popen[str]:
    own = {"env": {"TMPDIR": str(project / "scratch")}, "cwd": project, "start_new_session": True}
    return start_warm(project / "cache", "--format", "json", *arguments, **own)


def _warm(project: Path, *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    code, out, err = _end(_start(project, *arguments))
    told = json.loads(out)
    assert schema_faults("warm", told) == []
    return code, told.get("plans", [told]), err


def test_one_that_fails_costs_no_other(project: Path) -> None:
    """The first one's files are another environment's."""
    _write(project, b="tp = 2", c="tp = 4")
    planned = _start(project, "--dry-run", "-f", "sgl-tune.toml:b")
    paths = [project / "cache" / path for path in json.loads(_end(planned)[1])["files"]]
    paths[0].parent.mkdir(parents=True)
    for path in paths:
        path.write_bytes(good())
    code, plans, err = _warm(project)
    assert code == 3 and "error: b: " in err and "tuned in another environment" in err
    (plan,) = plans
    assert (len(plan["files"]), plan["tuned"], plan["proof"]["asked"]) == (4, 10, 20)
    assert plan["proof"]["misses"] == [] and plan["proof"]["profiled"] == {}
    assert {path.read_bytes() for path in paths} == {good()}


def test_ctrl_c_in_the_second_tells_of_the_first(project: Path) -> None:
    demo = 'model-path = "demo-moe"\nchunked-prefill-size = 8192\nmax-running-requests = 4096\ntp = 2'
    _write(project, a="tp = 1", b=demo)
    process = _start(project, "--prove", "none")
    scratch = project / "scratch"
    started: set[Path] = set()  # a worker of each deployment wrote one, and the first one's folder goes late
    until(lambda: started.update(scratch.glob("sgl-tune-*/base.0.0.json")) or len(started) == 2, SECONDS)
    assert _rank_files(project / "cache")
    family = tree_of(process.pid)
    assert [pid for pid in children_of(process.pid) if "sgl_tune.warm.worker" in command_of(pid)]
    os.killpg(process.pid, signal.SIGINT)
    code, out, err = _end(process)
    assert code == 130 and "interrupted by SIGINT: the workers were stopped" in err
    assert [len(plan["files"]) for plan in [json.loads(out)]] == [1] and _rank_files(project / "cache")
    assert len(list((project / "cache").rglob(LOCK))) == 1  # of the second nothing is left
    until(lambda: not any(map(runs, family)), 20)
    assert list(scratch.iterdir()) == []
