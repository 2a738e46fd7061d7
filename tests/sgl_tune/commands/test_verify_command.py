"""`sgl-tune verify` as its users run it: exit codes, JSON, deployments, users, terminals."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import pytest

from sgl_tune.cache.record import serialise
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.keys.plan import make_plan
from tests.sgl_tune.cache.caches import KEY, cache_folder, good, rank_names, write_ranks
from tests.sgl_tune.cache.corpus import TARGET
from tests.sgl_tune.modelopt import with_its_embedding
from tests.sgl_tune.running import ROOT, Ran, run, run_anew, run_on_terminal

MODEL = ("--model-path", "Qwen/Qwen3-30B-A3B", "--moe-runner-backend", "flashinfer_cutlass")
VERSIONS = ("--sglang-version", "0.5.23", "--flashinfer-version", "0.7.2", "--arch", "sm90")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "env.json"
    path.write_text(json.dumps({"metadata": TARGET, "arch": "sm90", "driver": "580.1"}))
    return path


def _report(ran: Ran) -> dict[str, Any]:
    data = json.loads(ran.out)
    assert data["schema_version"] == 1
    assert ran.code == (0 if data["ok"] else 1)
    return data


def _verdicts(data: dict[str, Any]) -> list[str]:
    return [file["verdict"] for file in data["files"]]


def _codes(data: dict[str, Any]) -> set[str]:
    found = [*data["findings"], *(found for file in data["files"] for found in file["findings"])]
    return {item["code"] for item in found}


def _warmed(cache_dir: Path, *, drop: int = 0, tp: int = 2) -> Path:
    """The cache that the deployment of MODEL and --tp asks for, less some of its entries."""
    flags = ServerFlags(
        model_path=MODEL[1],
        moe_runner_backend=MODEL[3],
        tp=tp,
        sglang_version="0.5.23",
        flashinfer_version="0.7.2",
        arch="sm90",
    )
    plan = make_plan(resolve_deployment(flags, environ={}), gpus=()).target
    entries = {key: [op.runner, 1, list(op.policy)] for op in plan.ops for key in op.keys}
    kept = dict(list(entries.items())[drop:])
    for path in plan.paths:
        (cache_dir / path).parent.mkdir(parents=True, exist_ok=True)
        (cache_dir / path).write_bytes(serialise(TARGET, kept))
    return cache_dir / plan.folder


def _there(cache_dir: Path, target: Path) -> tuple[object, ...]:
    return ("--cache-dir", cache_dir, "--target", target, "--format", "json", *VERSIONS)


def test_a_good_cache_ends_with_0(tmp_path: Path, target: Path) -> None:
    write_ranks(cache_folder(tmp_path), rank_names(tp=2))
    data = _report(run("verify", "--cache-dir", tmp_path, "--target", target, "--format", "json"))
    assert data["ok"] is True and _verdicts(data) == ["hit", "hit"]
    assert data["target"] == {"from": str(target), "metadata": TARGET}
    assert data["findings"] == []


def test_a_bad_cache_ends_with_1_and_says_why(tmp_path: Path, target: Path) -> None:
    paths = write_ranks(cache_folder(tmp_path), rank_names(tp=2))
    paths[1].write_bytes(b"{")
    ran = run("verify", "--cache-dir", tmp_path, "--target", target)
    assert ran.code == 1
    assert "deleted         2  tp0-1" in ran.out
    assert "error not-json: tp1: " in ran.out and "JSONDecodeError" in ran.out
    assert ran.out.rstrip().endswith(
        "bad: ranks-differ, not-json; 0 of 2 files load, judged by themselves: no deployment is given"
    )
    assert ran.err == ""


def test_strict_lets_warnings_fail(tmp_path: Path, target: Path) -> None:
    write_ranks(cache_folder(tmp_path), rank_names(), good(note=["R", 1]))
    arguments = ("verify", "--cache-dir", tmp_path, "--target", target)
    assert run(*arguments).code == 0
    assert run(*arguments, "--strict").code == 1


def test_what_loads_and_cannot_be_saved_is_bad_for_a_reason(tmp_path: Path, target: Path) -> None:
    folder = cache_folder(tmp_path)
    write_ranks(folder, rank_names())
    everybodys = Path(gettempdir())
    for path in (folder, *folder.parents):
        if path != everybodys and path.is_relative_to(everybodys):
            path.chmod(0o755)
    ran = run(
        "verify", "--cache-dir", tmp_path, "--target", target, "--as-user", "nobody", "--format", "json"
    )
    data = _report(ran)
    assert _verdicts(data) == ["hit"]
    wanted = {True: "good: 1 of 1 file loads", False: "bad: not-writable; 1 of 1 file loads"}[data["ok"]]
    assert data["verdict"].startswith(wanted)


def test_github_shows_each_finding_beside_its_file(tmp_path: Path, target: Path) -> None:
    folder = cache_folder(tmp_path / "odd,name:50%")
    paths = write_ranks(folder, rank_names(tp=2))
    paths[1].write_bytes(b"{")
    ran = run("verify", "--cache-dir", tmp_path, "--target", target, "--format", "github")
    lines = ran.out.splitlines()
    place = str(paths[1]).replace("%", "%25").replace(":", "%3A").replace(",", "%2C")
    assert ran.code == 1 and all(line.startswith(("::error ", "::warning ", "::notice ")) for line in lines)
    assert any(line.startswith(f"::error file={place},title=not-json::not JSON") for line in lines)


def test_quiet_prints_what_will_not_be_used(tmp_path: Path, target: Path) -> None:
    folder = cache_folder(tmp_path)
    write_ranks(folder, rank_names())
    (bad,) = write_ranks(cache_folder(tmp_path, key="0" * 16), rank_names(), b"[]")
    ran = run("verify", "--cache-dir", tmp_path, "--target", target, "--format", "quiet")
    assert (ran.code, ran.out) == (1, f"{bad}\n")


def test_a_key_a_folder_and_a_file_say_what_to_look_at(tmp_path: Path, target: Path) -> None:
    paths = write_ranks(cache_folder(tmp_path), rank_names(tp=2))
    write_ranks(cache_folder(tmp_path, key="0" * 16), rank_names(), b"[]")
    for what, files in ((KEY[:6], 2), (paths[0].parent, 2), (paths[0], 1)):
        ran = run("verify", what, "--cache-dir", tmp_path, "--target", target, "--format", "json")
        assert len(_report(ran)["files"]) == files


@pytest.mark.parametrize(
    "arguments",
    [
        ("no-such-thing",),
        ("a", "b"),
        ("--target", "no-such-file"),
        ("--as-user", "no-such-user"),
        ("--sglang-version", "0.5.9"),
        ("--deployment", "nobody"),
    ],
)
def test_what_is_not_there_ends_with_2(arguments: tuple[str, ...], tmp_path: Path) -> None:
    write_ranks(cache_folder(tmp_path), rank_names())
    ran = run("verify", *arguments, "--cache-dir", tmp_path, cwd=tmp_path)
    assert ran.code == 2 and ran.out == ""
    assert ran.err.startswith("error: ") and "Traceback" not in ran.err


def test_without_a_target_it_says_so(tmp_path: Path) -> None:
    write_ranks(cache_folder(tmp_path), rank_names())
    data = _report(run("verify", "--cache-dir", tmp_path, "--format", "json", PATH=str(tmp_path)))
    assert data["target"]["metadata"] is None and "target-unknown" in _codes(data)


def test_a_version_and_a_gpu_are_a_server_too(tmp_path: Path) -> None:
    write_ranks(cache_folder(tmp_path), rank_names())
    write_ranks(cache_folder(tmp_path, arch="sm100"), rank_names())
    ran = run("verify", "--cache-dir", tmp_path, "--arch", "sm100", "--format", "json", PATH=str(tmp_path))
    assert sorted(_verdicts(_report(ran))) == ["hit", "ignored"]


def test_a_warm_deployment_is_a_hit(tmp_path: Path, target: Path) -> None:
    _warmed(tmp_path)
    ran = run(
        "verify",
        *MODEL,
        "--tp",
        2,
        "--cache-dir",
        tmp_path,
        "--target",
        target,
        "--format",
        "json",
        *VERSIONS,
    )
    data = _report(ran)
    assert _verdicts(data) == ["hit", "hit"] and _codes(data) == set()


def test_a_server_command_is_a_deployment_too(tmp_path: Path, target: Path) -> None:
    _warmed(tmp_path)
    command = ("python", "-m", "sglang.launch_server", *MODEL, "--tp", 2, "--port", 30000)
    before = ("verify", "--cache-dir", tmp_path, "--target", target, "--sglang-version", "0.5.23")
    assert _verdicts(_report(run(*before, "--format", "json", "--", *command))) == ["hit", "hit"]


def test_missing_entries_make_it_partial(tmp_path: Path, target: Path) -> None:
    folder = _warmed(tmp_path, drop=3)
    ran = run("verify", folder, *MODEL, "--tp", 2, "--target", target, "--format", "json", *VERSIONS)
    data = _report(ran)
    assert _verdicts(data) == ["partial", "partial"] and _codes(data) == {"keys-missing"}
    assert ran.code == 0


def test_a_cache_for_fewer_ranks_lies_under_another_key(tmp_path: Path, target: Path) -> None:
    _warmed(tmp_path)
    ran = run(
        "verify",
        *MODEL,
        "--tp",
        4,
        "--cache-dir",
        tmp_path,
        "--target",
        target,
        "--format",
        "json",
        *VERSIONS,
    )
    data = _report(ran)
    assert _verdicts(data) == ["missing"] * 4 and _codes(data) == {"rank-missing", "nearest-key"}


def test_a_folder_of_another_key_is_compared_and_named(tmp_path: Path, target: Path) -> None:
    folder = _warmed(tmp_path)
    ran = run("verify", folder, *MODEL, "--tp", 4, "--target", target, "--format", "json", *VERSIONS)
    assert {"other-folder", "keys-missing", "rank-missing"} <= _codes(_report(ran))


def test_an_older_versions_cache_is_found_beside_the_missing_one(tmp_path: Path, target: Path) -> None:
    folder = _warmed(tmp_path)
    old = tmp_path / "flashinfer" / "autotune" / "0.7.1" / "sm90"
    old.mkdir(parents=True)
    folder.rename(old / folder.name)
    ran = run(
        "verify",
        *MODEL,
        "--tp",
        2,
        "--cache-dir",
        tmp_path,
        "--target",
        target,
        "--format",
        "json",
        *VERSIONS,
    )
    data = _report(ran)
    assert sorted(_verdicts(data)) == ["ignored", "ignored", "missing", "missing"]
    assert "other-folder" in _codes(data)


def test_the_project_file_names_the_deployment(tmp_path: Path, target: Path) -> None:
    _warmed(tmp_path / "cache")
    (tmp_path / "sgl-tune.toml").write_text(
        '[deployments.chat]\nmodel-path = "Qwen/Qwen3-30B-A3B"\ntp = 2\n'
        'moe-runner-backend = "flashinfer_cutlass"\nsglang-version = "0.5.23"\n'
    )
    arguments = ("verify", "--cache-dir", tmp_path / "cache", "--target", target, "--format", "json")
    for chosen in ((), ("--deployment", "chat")):
        assert _verdicts(_report(run(*arguments, *chosen, cwd=tmp_path))) == ["hit", "hit"]
    assert run(*arguments, "--deployment", "other", cwd=tmp_path).code == 2


def test_two_deployments_under_one_key_are_each_asked_for(tmp_path: Path, target: Path) -> None:
    _warmed(tmp_path / "cache")
    (tmp_path / "sgl-tune.toml").write_text(
        '[defaults]\nmodel-path = "Qwen/Qwen3-30B-A3B"\nmoe-runner-backend = "flashinfer_cutlass"\n'
        'sglang-version = "0.5.23"\ntp = 2\n[deployments.usual]\n'
        "[deployments.odd]\nchunked-prefill-size = 6144\n"
    )
    arguments = ("--cache-dir", tmp_path / "cache", "--target", target, "--format", "json")
    data = _report(run("verify", *arguments, cwd=tmp_path))
    assert _verdicts(data) == ["hit", "hit", "partial", "partial"]
    assert "6144" in str([file["findings"] for file in data["files"]])


def test_another_user_is_asked_for(tmp_path: Path, target: Path) -> None:
    (path,) = write_ranks(cache_folder(tmp_path), rank_names())
    path.chmod(0o600)
    ran = run("verify", "--cache-dir", tmp_path, "--target", target, "--as-user", 3999999, "--format", "json")
    data = _report(ran)
    assert _verdicts(data) == ["crash"] and "not-readable" in _codes(data)


def test_what_another_user_may_not_is_said_once_of_all_ranks(tmp_path: Path, target: Path) -> None:
    write_ranks(cache_folder(tmp_path / "closed"), [f"rank_tp{rank}_pp0_dp0.json" for rank in range(4)])
    tmp_path.chmod(0o700)
    ran = run("verify", "--cache-dir", tmp_path / "closed", "--target", target, "--as-user", 3999999)
    (said,) = (line for line in ran.out.splitlines() if line.startswith("error not-readable: "))
    assert ran.code == 1 and said.startswith("error not-readable: tp0-3: uid 3999999 cannot get into /")


def test_hostile_content_cannot_drive_the_terminal(tmp_path: Path, target: Path) -> None:
    raw = serialise({**TARGET, "gpu": "\x1b[2J\x07evil"}, {"\x1b]0;evil\x07": 7})
    (cache_folder(tmp_path) / "rank_tp0_pp0_dp0.json").write_bytes(raw)
    ran = run("verify", "--cache-dir", tmp_path, "--target", target)
    assert "evil" in ran.out and "\x1b" not in ran.out and "\x07" not in ran.out
    json.loads(run("verify", "--cache-dir", tmp_path, "--target", target, "--format", "json").out)


def test_a_terminal_of_80_columns_is_enough(tmp_path: Path, target: Path) -> None:
    paths = write_ranks(cache_folder(tmp_path), rank_names(tp=4))
    paths[2].write_bytes(good({**TARGET, "cudnn_version": "90000"}))
    ran = run_on_terminal("verify", "--cache-dir", tmp_path, "--target", target, NO_COLOR="1")
    lines = ran.out.splitlines()
    assert ran.code == 1 and any("cudnn_version" in line for line in lines)
    assert all(len(line) <= 80 for line in lines if " " in line.strip())


def test_neither_help_nor_a_verdict_imports_torch(tmp_path: Path, target: Path) -> None:
    write_ranks(cache_folder(tmp_path / "cache"), rank_names())
    for package in ("torch", "flashinfer", "transformers"):
        (tmp_path / f"{package}.py").write_text("raise SystemExit('imported')")
    for arguments in (("--help",), ("--cache-dir", tmp_path / "cache", "--target", target)):
        ran = run_anew("verify", *arguments, PYTHONPATH=f"{tmp_path}:{ROOT}")
        assert ran.code == 0 and "imported" not in ran.err
    assert "Example:" in run("verify", "--help").out


@pytest.mark.parametrize("made", [[], ["flashinfer/autotune/0.7.2/sm90/" + KEY], ["unrelated/folder"]])
def test_nothing_to_verify_is_no_good_news(tmp_path: Path, target: Path, made: list[str]) -> None:
    """A forgotten COPY must not pass an image build's check."""
    caches = tmp_path / "caches"
    for name in [".", *made]:
        (caches / name).mkdir(parents=True, exist_ok=True)
    for where in (("--cache-dir", caches), (caches,)):
        ran = run("verify", *where, "--target", target, "--strict", cwd=tmp_path)
        assert (ran.code, ran.out) == (2, "") and f"nothing to verify in {caches}" in ran.err


@pytest.mark.parametrize(
    "command",
    [
        ("--model-path", "zai-org/GLM-5.1-FP8", "--tp", 8),
        (*MODEL, "--disable-flashinfer-autotune"),
    ],
)
def test_a_server_that_tunes_nothing_lacks_nothing(
    tmp_path: Path, target: Path, command: tuple[object, ...]
) -> None:
    server = ("--", "python", "-m", "sglang.launch_server", *command)
    data = _report(run("verify", *_there(tmp_path, target), "--strict", *server))
    assert data["ok"] and data["files"] == [] and _codes(data) == {"tunes-nothing"}
    page = run("verify", "--cache-dir", tmp_path, "--target", target, *VERSIONS, *server)
    assert "info tunes-nothing: " in page.out and "it loads no cache, whatever files there are" in page.out
    (last,) = page.out.splitlines()[-1:]
    assert last.startswith("good: the next start loads no file: ") and " tunes nothing: " in last


@pytest.mark.parametrize("where", ["folder", "key", "cache directory"])
def test_a_server_that_loads_nothing_is_told_nothing_good_of_other_models_files(
    tmp_path: Path, target: Path, where: str
) -> None:
    folder = _warmed(tmp_path, tp=8)
    place = {"folder": (tmp_path,), "key": (folder.name[:8],), "cache directory": ()}[where]
    model = ("--model-path", "deepseek-ai/DeepSeek-V3", "--tp", 8)
    data = _report(run("verify", *place, *model, *_there(tmp_path, target)))
    assert data["ok"] and data["files"] == [] and _codes(data) == {"tunes-nothing"}
    assert data["verdict"].startswith("good: the next start loads no file: DeepSeek-V3 tunes nothing: ")


def test_files_under_another_key_are_not_loaded(tmp_path: Path, target: Path) -> None:
    folder = _warmed(tmp_path)
    other = (*MODEL, "--tp", 2, "--pp", 2)
    data = _report(run("verify", folder, *other, "--target", target, "--format", "json", *VERSIONS))
    assert set(_verdicts(data)) == {"ignored", "missing"}
    assert (
        data["verdict"]
        == "bad: other-folder, rank-missing; the next start loads 0 of 4 files; no server was asked"
    )


def test_what_cannot_be_planned_is_not_called_covered(tmp_path: Path, target: Path) -> None:
    (tmp_path / "model").mkdir()
    model = ("--model-path", with_its_embedding(tmp_path / "model", "Llama-3.1-8B"))
    data = _report(run("verify", *model, *_there(tmp_path, target)))
    (missing,) = data["files"]
    assert _codes(data) == {"rank-missing", "not-planned"} and missing["verdict"] == "missing"
    assert "sgl-tune warm" not in missing["findings"][0]["remedy"], "which would be the next dead end"
    saved = Path(missing["path"])
    saved.parent.mkdir(parents=True)
    saved.write_bytes(good())
    data = _report(run("verify", *model, *_there(tmp_path, target)))
    assert _verdicts(data) == ["hit"] and _codes(data) == {"not-planned"}
    assert data["verdict"].endswith("; whether they hold all that it tunes is not known; no server was asked")
    strict = run("verify", "--strict", *model, *_there(tmp_path, target))
    assert strict.code == 1


def test_a_newer_sglang_is_a_warning(tmp_path: Path, target: Path) -> None:
    write_ranks(cache_folder(tmp_path), rank_names(tp=1))
    ran = run("verify", "--cache-dir", tmp_path, "--target", target, "--sglang-version", "0.6.0")
    assert ran.code == 0 and "warning: SGLang 0.6.0 is newer than 0.5.23" in ran.err


def test_what_is_not_modelled_stands_with_the_verdict(tmp_path: Path) -> None:
    command = ("python", "-m", "sglang.launch_server", "--model-path", "DeepSeek-V3", "--cpu-offload-gb", "8")
    ran = run("verify", "--cache-dir", tmp_path, "--arch", "sm100", "--", *command)
    assert ran.out.splitlines()[-1].endswith(
        "; not counting --cpu-offload-gb 8: not modelled; no server was asked"
    )
