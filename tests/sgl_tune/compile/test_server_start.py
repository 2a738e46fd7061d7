"""The start of a deployment's own server: which command it is, how deep, and that nothing of it is left."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime.server.flags import parse
from runtime.server.flags.spelling import line_of
from runtime.server.releases import RELEASES
from sgl_tune.cli.format import Format
from sgl_tune.cli.out import Output
from sgl_tune.compile.build import Built
from sgl_tune.compile.cut import cut_of
from sgl_tune.compile.everything import Modules, Wanted, finish
from sgl_tune.compile.server_words import server_words, why_not_started
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.deployment.versions import Gpu
from sgl_tune.errors import UsageError
from tests.sgl_tune.planning import HOPPER, plan
from tests.sgl_tune.schemas import schema_faults

SERVE = Path(__file__).parents[1] / "start_report" / "serve.sh"
STAND_IN = (
    "import os, sys; os.execv(os.environ['SERVE'], [os.environ['SERVE'], os.environ['HOW'], *sys.argv])\n"
)
H200 = Gpu("NVIDIA H200", "sm90", 143771, "a")


def deployment(*command: str, **flags: Any) -> Deployment:
    given = {"gpu": "h200", "sglang_version": "0.5.23", **flags}
    return select_deployments(ServerFlags(**given), command, None)[0]


@pytest.mark.parametrize(
    ("model", "layers", "of"),
    [("Qwen3-30B-A3B", 3, 48), ("DeepSeek-V3", 6, 61), ("gpt-oss-20b", 4, 24), ("demo-moe", 3, 4)],
)
def test_the_first_layers_stand_for_all_where_every_neighbourhood_is_among_them(
    model: str, layers: int, of: int
) -> None:
    cut = cut_of(deployment(model_path=model, tp=8))
    assert (cut.layers, cut.of, bool(cut.why)) == (layers, of, layers == of)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({"speculative_algorithm": "NGRAM"}, "it speculates"),
        ({"pp": 2}, "spread over stages"),
    ],
)
def test_what_cannot_be_known_is_not_cut_and_says_why(flags: dict[str, Any], why: str) -> None:
    cut = cut_of(deployment(model_path="Qwen3-30B-A3B", **flags))
    assert why in cut.why and not cut.overrides and cut.flags(deployment(model_path="Qwen3-30B-A3B")) == []


def test_a_list_of_the_layers_kinds_is_cut_with_them() -> None:
    plain = deployment(model_path="gpt-oss-20b")
    checkpoint = plain.inputs.checkpoint
    kinds = ["sliding_attention", "full_attention"] * 12
    listed = replace(checkpoint, hf={**checkpoint.hf, "layer_types": kinds})
    cut = cut_of(replace(plain, inputs=replace(plain.inputs, checkpoint=listed)))
    assert cut.overrides == {"num_hidden_layers": 4, "layer_types": kinds[:4]}


def test_a_config_with_an_entry_for_each_layer_that_nobody_read_is_not_cut() -> None:
    plain = deployment(model_path="Qwen3-30B-A3B")
    checkpoint = plain.inputs.checkpoint
    odd = replace(checkpoint, hf={**checkpoint.hf, "odd_layers": [1] * 48})
    cut = cut_of(replace(plain, inputs=replace(plain.inputs, checkpoint=odd)))
    assert cut.why == "odd_layers has an entry for each layer"


@pytest.mark.parametrize("release", [row.version for row in RELEASES])
def test_every_release_takes_the_command(release: str) -> None:
    chosen = deployment(
        model_path="Qwen3-30B-A3B", tp=2, dp=2, enable_dp_attention=True, sglang_version=release
    )
    words, _ = server_words(chosen, cut_of(chosen))
    assert words[1:3] == ["-m", "sglang.launch_server"]
    given = parse(line_of(chosen.server.release), words[3:]).given
    assert (given["model_path"], given["tp_size"], given["dp_size"]) == ("Qwen3-30B-A3B", 2, 2)
    assert (given["load_format"], given["host"]) == ("dummy", "127.0.0.1")
    assert given["enable_dp_attention"] is True and given["port"] > 1023
    assert json.loads(given["json_model_override_args"]) == {"num_hidden_layers": 3}


def test_a_command_is_taken_as_it_is_written_and_ours_stands_last() -> None:
    line = "FOO=1 python -m sglang.launch_server --model-path Qwen3-30B-A3B --host 0.0.0.0 --log-level debug"
    line += " --dist-init-addr 10.0.0.1:5000"
    chosen = deployment(line)
    words, settings = server_words(chosen, cut_of(chosen))
    given = parse(line_of(chosen.server.release), words[3:]).given
    assert given["dist_init_addr"].startswith("127.0.0.1:")
    assert given["host"] == "127.0.0.1" and given["log_level"] == "debug" and settings == {"FOO": "1"}
    for more, why in (("--tokenizer-path $HERE", "is not expanded"), ("--grpc-mode", "--grpc-mode is ready")):
        with pytest.raises(UsageError, match=why):
            server_words(deployment(f"{line} {more}"), cut_of(chosen))


def test_why_a_server_is_not_started_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    chosen = deployment(model_path="Qwen3-30B-A3B", tp=4)
    assert why_not_started(chosen, [H200]) == "SGLang is not installed here"
    _install(tmp_path, "0.5.23", monkeypatch)
    assert why_not_started(chosen, [H200]) == "it has 4 ranks, and 1 GPUs are here"
    assert why_not_started(chosen, [H200] * 4) is None
    assert "it is for sm90" in str(why_not_started(chosen, [replace(H200, arch="sm100")] * 4))
    other = deployment(model_path="Qwen3-30B-A3B", sglang_version="0.5.17")
    assert "0.5.17 is meant" in str(why_not_started(other, [H200]))


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
def test_a_start_ends_when_it_is_ready_and_tells_what_it_compiled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _install(tmp_path, "0.5.23", monkeypatch)
    monkeypatch.setenv("HOW", "serves")
    root = tmp_path / "root"
    root.mkdir()
    chosen = deployment(model_path="Qwen3-30B-A3B", cache_dir=str(root))
    built = [Built("norm", "there")]
    filled = finish(chosen, Wanted(timeout=30), (Modules((), ()), built), [H200], Output(Format.quiet))
    started = filled.started
    assert started is not None and started.compiled == ("norm",) and started.seconds > 0.3
    assert (started.cut.layers, started.cut.of) == (3, 48) and not filled.left and filled.exit_code == 0
    assert filled.environment["SGLANG_CACHE_DIR"] == str(root)
    told = {**plan("--model-path", "Qwen3-30B-A3B", *HOPPER), "everything": filled.to_json()}
    assert schema_faults("warm", told) == []
    assert _is_gone(int((tmp_path / "child").read_text()))


def test_without_a_start_what_is_left_is_told(tmp_path: Path) -> None:
    chosen = deployment(model_path="Qwen3-30B-A3B", cache_dir=str(tmp_path))
    modules = Modules((), ("attention by somebody",))
    filled = finish(chosen, Wanted(), (modules, []), [H200], Output(Format.quiet))
    assert filled.started is None and filled.exit_code == 1
    assert any("SGLang is not installed here" in one for one in filled.left)


def test_a_start_that_fails_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _install(tmp_path, "0.5.23", monkeypatch)
    monkeypatch.setenv("HOW", "dies")
    chosen = deployment(model_path="Qwen3-30B-A3B", cache_dir=str(tmp_path / "root"))
    (tmp_path / "root").mkdir()
    wanted, nothing = Wanted(timeout=30), (Modules((), ()), list[Built]())
    filled = finish(chosen, wanted, nothing, [H200], Output(Format.quiet))
    assert "did not get ready: ValueError: no such thing" in str(filled.start_failed)
    assert filled.exit_code == 3 and filled.environment and filled.started is None


def _is_gone(pid: int) -> bool:
    limit = time.monotonic() + 5
    while time.monotonic() < limit:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False
