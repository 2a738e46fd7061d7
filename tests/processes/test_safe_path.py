"""No process of ours imports what lies in the working folder, or beside a model."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from sgl_tune.processes.command import ROOT, safe_environment
from sgl_tune.processes.crew import Crew
from sgl_tune.processes.scratch import scratch
from tests.processes import hostile
from tests.warm.test_warm import MODEL, SMALL

SECONDS = 300
# What the installed script does: its folder, and not the working one, is first on the path.
SCRIPT = "import sys\nfrom sgl_tune.cli.app import main\nsys.exit(main())\n"

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="the work itself needs torch")


@pytest.fixture
def traps(tmp_path: Path) -> tuple[Path, Path]:
    """A working folder and the place where each trap that ran leaves its mark."""
    assert hostile.fill(tmp_path / "work", tmp_path / "marks") > 300
    return tmp_path / "work", tmp_path / "marks"


def _installed(tmp_path: Path) -> list[str]:
    script = tmp_path / "bin" / "sgl-tune"
    script.parent.mkdir(exist_ok=True)
    script.write_text(SCRIPT)
    return [sys.executable, str(script)]


def _run(tmp_path: Path, work: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    dependencies = [place for place in sys.path if place.endswith("site-packages")]
    path = os.pathsep.join([str(ROOT), *dependencies])
    variables = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [*_installed(tmp_path), *arguments]
    return subprocess.run(command, cwd=work, env=variables, capture_output=True, text=True, timeout=SECONDS)


def _sprung(marks: Path) -> list[str]:
    return sorted(mark.name for mark in marks.iterdir())


def test_the_traps_spring_under_plain_python(traps: tuple[Path, Path], tmp_path: Path) -> None:
    work, marks = traps
    subprocess.run([sys.executable, "-c", "import colorsys"], cwd=work, capture_output=True)
    assert _sprung(marks)


@pytest.mark.parametrize("python_path", [None, "", ":", ".", "work/..", "{root}::."])
def test_a_booted_process_finds_nothing_in_its_working_folder(
    python_path: str | None, traps: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    work, marks = traps
    monkeypatch.chdir(work)
    if python_path is None:
        monkeypatch.delenv("PYTHONPATH", raising=False)
    else:
        monkeypatch.setenv("PYTHONPATH", python_path.format(root=ROOT))
    module = work.parent / "asking.py"
    module.write_text(_ASKING)
    monkeypatch.setenv("PYTHONPATH", f"{os.environ.get('PYTHONPATH', '')}:{module.parent}")
    with scratch() as private, Crew("asking", 1, private) as crew:
        crew.members[0].send("import", names=hostile.names())
        heard = None
        while heard is None:
            for _, event in crew.events(1.0):
                heard = event
            assert not crew.ended, crew.members[0].last_words
    assert heard["ours"] == str(ROOT / "sgl_tune" / "__init__.py")
    assert not [place for place in heard["specs"] if place.startswith(str(work))]
    assert not [place for place in heard["path"] if Path(place).resolve() == work.resolve()]
    assert _sprung(marks) == []


_ASKING = """
import importlib.util, sys
import sgl_tune

def main(child):
    places = [importlib.util.find_spec(n) for n in child.command()["names"] if n not in sys.modules]
    child.say("found", path=sys.path, ours=sgl_tune.__file__, specs=[str(p and p.origin) for p in places])
    child.command()
"""


def test_only_absolute_places_stay_on_pythonpath() -> None:
    assert safe_environment({"PYTHONPATH": ":/a:.:b:/c:"})["PYTHONPATH"] == "/a:/c"
    assert "PYTHONPATH" not in safe_environment({"PYTHONPATH": ""})
    assert safe_environment({"HOME": "/h"}) == {"HOME": "/h", "PYTHONSAFEPATH": "1"}


@pytest.mark.parametrize(
    "command",
    [("inspect",), ("verify",), ("prune", "--dry-run"), ("env",), ("warm", "--dry-run"), ("--version",)],
)
def test_commands_run_none_of_it(command: tuple[str, ...], traps: tuple[Path, Path], tmp_path: Path) -> None:
    work, marks = traps
    options = () if command in (("env",), ("--version",)) else ("--cache-dir", str(tmp_path / "cache"))
    done = _run(tmp_path, work, *command, *options)
    assert "Traceback" not in done.stderr and done.returncode in (0, 1, 2)
    assert _sprung(marks) == []


@needs_torch
def test_warm_and_its_proof_run_nothing_of_both_folders(traps: tuple[Path, Path], tmp_path: Path) -> None:
    work, marks = traps
    (work / "config.json").write_text(json.dumps(MODEL))
    done = _run(
        tmp_path, work, "warm", "--model-path", ".", "--gpu", "cpu", *SMALL, "--tp", "2",
        "--cache-dir", str(tmp_path / "cache"), "--format", "json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["proof"]["misses"] == []
    assert _sprung(marks) == []


@needs_torch
def test_mem_report_and_its_processes_run_nothing_of_it(traps: tuple[Path, Path], tmp_path: Path) -> None:
    work, marks = traps
    done = _run(
        tmp_path, work, "mem-report", "--model-path", "demo-moe", "--gpu", "l40s", "--format", "json",
        "--what-if", "graphs-ascending", "--what-if", "no-graphs", "--moe-runner-backend", "triton",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["what_if"]) == 2
    assert _sprung(marks) == []


@needs_torch
def test_a_start_runs_none(traps: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sgl_tune.cli.out import Output
    from sgl_tune.memory.core.measure import measure
    from tests.memory.starts import DEMO_ON_CPU, make_start

    work, marks = traps
    start = make_start(**DEMO_ON_CPU)
    monkeypatch.chdir(work)
    (report,) = measure([start], tmp_path / "run.jsonl", Output(), device="cpu")
    assert report.verdict == "fits"
    assert _sprung(marks) == []
