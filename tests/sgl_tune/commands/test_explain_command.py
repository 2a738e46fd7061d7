"""`explain` shows what a server's own start settles, and says who could be asked where there is none."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.ghost.c_running import BUILT
from tests.ghost.environments import SMALLEST, python_of
from tests.ghost.test_starts import CONFIG
from tests.sgl_tune.running import PROGRAM, Ran, environment, run_here
from tests.sgl_tune.schemas import schema_faults

COMMAND = ("--", "python", "-m", "sglang.launch_server")
FLAGS = ("--tp", "2", "--dp", "2", "--enable-dp-attention", "--attention-backend", "triton")


def explained(model: Path, *more: object) -> Ran:
    """A start on a busy machine may take minutes."""
    (model / "config.json").write_text(json.dumps(CONFIG))
    ours = ("explain", "--gpu", "h200", "--server", python_of(SMALLEST))
    words = [*ours, "--model-config", model / "config.json", *more, *COMMAND, "--model-path", "org/model"]
    command, variables = [*PROGRAM, *map(str, words), *FLAGS], environment(XDG_CACHE_HOME=str(BUILT.parent))
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=400)
    return Ran(done.returncode, done.stdout, done.stderr)


def test_a_servers_own_start_is_shown_beside_what_was_asked(tmp_path: Path) -> None:
    ran = explained(tmp_path, "--format", "json")
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert schema_faults("explain", told) == []
    found = {one["name"]: one for one in told["arguments"]}
    assert (found["tp_size"]["value"], found["tp_size"]["given"], found["tp_size"]["default"]) == (2, 2, 1)
    assert found["model_path"]["value"] == "org/model"
    chunk = found["chunked_prefill_size"]
    assert chunk["given"] is None and str(chunk["value"]) in chunk["why"][0]
    assert told["settled"]["tunes"] is False and "tunes nothing" in told["verdict"]
    assert told["settled"]["attn_dp_size"] == 2 and len(told["settled"]["decode_graphs"]) > 2
    assert len(told["files"]) == 2 and told["settled"]["key"] in told["files"][0]
    assert any("tuner keys" in left for left in told["not_asked"])


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--model-path", "Qwen3-30B-A3B", "--gpu", "h200"), 1, "sgl-tune server add"),
        (("--model-path", "Qwen3-30B-A3B", "--server", "0.5.22"), 1, "sgl-tune server add 0.5.22"),
        (("--server", "/nowhere", "--model-path", "m"), 2, "/nowhere"),
        (("--server", "core", "--model-path", "m"), 2, "--server core asks no server"),
        ((), 2, "no model is named"),
    ],
)
def test_without_a_server_one_line_says_how_to_get_one(words: tuple[str, ...], code: int, said: str) -> None:
    ran = run_here("explain", *words)
    assert ran.code == code and said in ran.err and not ran.out, ran.err


def test_a_second_server_that_is_not_there_is_named_before_anything_starts(tmp_path: Path) -> None:
    ran = explained(tmp_path, "--against", "0.5.22")
    assert ran.code == 1 and "sgl-tune server add 0.5.22" in ran.err and "starting" not in ran.err
    assert explained(tmp_path, "--against", tmp_path).ends(2, str(tmp_path))
