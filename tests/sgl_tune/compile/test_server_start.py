"""The server's own start: which command it is, why there is none, and that nothing of it is left."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.asking.question import value_of
from sgl_tune.cli.format import Format
from sgl_tune.cli.out import Output
from sgl_tune.compile.build import Built
from sgl_tune.compile.everything import finish, server_words, why_not_started
from sgl_tune.compile.goal import Modules
from sgl_tune.deployment.versions import Gpu
from tests.sgl_tune.compile.goals import goal
from tests.sgl_tune.planning import HOPPER, plan
from tests.sgl_tune.schemas import schema_faults
from tests.warm.processes import runs, until

SERVE = Path(__file__).parents[1] / "start_report" / "serve.sh"
STAND_IN = (
    "import os, sys; os.execv(os.environ['SERVE'], [os.environ['SERVE'], os.environ['HOW'], *sys.argv])\n"
)
H200 = Gpu("NVIDIA H200", "sm90", 143771, "a")


def test_the_command_is_the_servers_own_and_ours_stands_last(tmp_path: Path) -> None:
    given = ("--host", "0.0.0.0", "--dist-init-addr", "10.0.0.1:5000")
    words = server_words(goal(tmp_path, words=given))
    assert words[:5] == [sys.executable, "-m", "sglang.launch_server", "--model-path", "m"]
    assert value_of(words, ["--host"]) == "127.0.0.1" and value_of(words, ["--load-format"]) == "dummy"
    assert str(value_of(words, ["--dist-init-addr"])).startswith("127.0.0.1:")
    assert "--dp-size" in server_words(goal(tmp_path, dp_size=2, enable_dp_attention=False))
    assert "--dp-size" not in server_words(goal(tmp_path, dp_size=2, enable_dp_attention=True))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"tp_size": 4}, "it has 4 ranks, and 1 GPUs are here"),
        ({"nnodes": 2}, "several nodes"),
        ({"disaggregation_mode": "prefill"}, "the prefill of a pair"),
        ({"grpc_mode": True}, "--grpc-mode is ready"),
    ],
)
def test_why_a_server_is_not_started_is_said(arguments: dict[str, Any], why: str, tmp_path: Path) -> None:
    assert why in str(why_not_started(goal(tmp_path, **arguments), [H200]))


def test_a_server_is_started_on_enough_gpus_of_its_kind(tmp_path: Path) -> None:
    assert why_not_started(goal(tmp_path, tp_size=4), [H200] * 4) is None
    assert "it is for sm90" in str(why_not_started(goal(tmp_path), [replace(H200, arch="sm100")]))
    contained = replace(goal(tmp_path), is_contained=True)
    assert "run it in the image" in str(why_not_started(contained, [H200]))


def _install(folder: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of SGLang's name whose server says a start's lines."""
    package, told = folder / "sglang", folder / f"sglang-{version}.dist-info"
    package.mkdir()
    told.mkdir()
    (package / "__init__.py").write_text("")
    (package / "launch_server.py").write_text(STAND_IN)
    (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setenv("SERVE", str(SERVE))
    monkeypatch.setenv("HOME", str(folder))


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_a_start_ends_ready_and_tells_what_it_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _install(tmp_path, "0.5.23", monkeypatch)
    monkeypatch.setenv("HOW", "serves")
    root = tmp_path / "root"
    root.mkdir()
    filled = finish(goal(root), 30, [Built("norm", "there")], None, [H200], Output(Format.quiet))
    started = filled.started
    assert started is not None and started.compiled == ("norm",) and started.seconds > 0.3
    assert not filled.left and filled.exit_code == 0
    assert filled.environment["SGLANG_CACHE_DIR"] == str(root)
    everything = json.loads(json.dumps(filled.to_json()))
    told = {**plan("--model-path", "Qwen3-30B-A3B", *HOPPER), "everything": everything}
    assert schema_faults("warm", told) == []
    until(lambda: not runs(int((tmp_path / "child").read_text())), 5)


def test_without_a_start_what_is_left_is_told(tmp_path: Path) -> None:
    unknown = Modules((), ("odd",))
    filled = finish(goal(tmp_path, unknown, tp_size=2), 600, [], None, [H200], Output(Format.quiet))
    assert filled.started is None and filled.exit_code == 1 and filled.unknown == ("odd",)
    assert any("it has 2 ranks, and 1 GPUs are here" in one for one in filled.left)


def test_a_start_that_fails_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _install(tmp_path, "0.5.23", monkeypatch)
    monkeypatch.setenv("HOW", "dies")
    (tmp_path / "root").mkdir()
    filled = finish(goal(tmp_path / "root"), 30, [], None, [H200], Output(Format.quiet))
    assert "did not get ready: ValueError: no such thing" in str(filled.start_failed)
    assert filled.exit_code == 3 and filled.environment and filled.started is None
