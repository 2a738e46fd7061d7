"""`sgl-tune verify` as its users run it: exit codes, JSON, deployments, users, terminals."""

import json
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.cache.record import serialise
from tests.sgl_tune.cache.caches import KEY, cache_folder, good, rank_names, write_ranks
from tests.sgl_tune.cache.corpus import TARGET
from tests.sgl_tune.fleet.nodes import entries, warmed
from tests.sgl_tune.running import Ran, run, run_on_terminal


def _there(cache_dir: Path, target: Path) -> tuple[object, ...]:
    return ("--cache-dir", cache_dir, "--target", target, "--format", "json", *VERSIONS)


MODEL = ("--model-path", "Qwen/Qwen3-30B-A3B", "--moe-runner-backend", "flashinfer_cutlass")
VERSIONS = ("--server", "0.5.23", "--gpu", "sm90")


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


def _warmed(cache_dir: Path, drop: int = 0) -> Path:
    """The cache that the deployment of MODEL and --tp 2 asks for, less some of its entries."""
    folder = warmed(cache_dir)
    for path in folder.iterdir():
        path.write_bytes(serialise(TARGET, dict(list(entries().items())[drop:])))
    return folder


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


def test_quiet_prints_what_is_missing_and_is_never_silent_about_a_fault(tmp_path: Path) -> None:
    _warmed(tmp_path, drop=1)
    asked = ("verify", "-q", *VERSIONS, *MODEL, "--tp")
    ran = run(*asked, 4, "--cache-dir", tmp_path / "none")
    assert ran.code == 1 and [Path(line).name for line in ran.out.splitlines()] == rank_names(tp=4)
    ran = run(*asked, 2, "--cache-dir", tmp_path, "--strict")
    assert ran.code == 1 and ran.out.startswith("bad: ")


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
        ("-f", "sgl-tune.toml:nobody"),
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


def test_a_warm_deployment_is_a_hit(tmp_path: Path, target: Path) -> None:
    _warmed(tmp_path)
    data = _report(run("verify", *MODEL, "--tp", 2, *_there(tmp_path, target)))
    assert _verdicts(data) == ["hit", "hit"] and _codes(data) == set()


def test_missing_entries_make_it_partial(tmp_path: Path, target: Path) -> None:
    folder = _warmed(tmp_path, drop=3)
    ran = run("verify", folder, *MODEL, "--tp", 2, "--target", target, "--format", "json", *VERSIONS)
    data = _report(ran)
    assert _verdicts(data) == ["partial", "partial"] and _codes(data) == {"keys-missing"}
    assert ran.code == 0


def test_a_cache_for_fewer_ranks_lies_under_another_key(tmp_path: Path, target: Path) -> None:
    _warmed(tmp_path)
    data = _report(run("verify", *MODEL, "--tp", 4, *_there(tmp_path, target)))
    assert _verdicts(data) == ["missing"] * 4 and _codes(data) == {"rank-missing", "nearest-key"}


def test_the_project_file_names_the_deployment(tmp_path: Path, target: Path) -> None:
    _warmed(tmp_path / "cache")
    (tmp_path / "sgl-tune.toml").write_text(
        '[deployments.chat]\nmodel-path = "Qwen/Qwen3-30B-A3B"\ntp = 2\n'
        'moe-runner-backend = "flashinfer_cutlass"\nsglang-version = "0.5.23"\n'
    )
    arguments = ("verify", "--cache-dir", tmp_path / "cache", "--target", target, "--format", "json")
    for chosen in ((), ("-f", "sgl-tune.toml:chat")):
        assert _verdicts(_report(run(*arguments, *chosen, cwd=tmp_path))) == ["hit", "hit"]
    assert run(*arguments, "-f", "sgl-tune.toml:other", cwd=tmp_path).code == 2


def test_a_file_closed_to_the_named_user_is_a_crash(tmp_path: Path, target: Path) -> None:
    (path,) = write_ranks(cache_folder(tmp_path), rank_names())
    path.chmod(0o600)
    ran = run("verify", "--cache-dir", tmp_path, "--target", target, "--as-user", 3999999, "--format", "json")
    data = _report(ran)
    assert _verdicts(data) == ["crash"] and "not-readable" in _codes(data)


def test_a_terminal_of_80_columns_is_enough(tmp_path: Path, target: Path) -> None:
    paths = write_ranks(cache_folder(tmp_path), rank_names(tp=4))
    paths[2].write_bytes(good({**TARGET, "cudnn_version": "90000"}))
    ran = run_on_terminal("verify", "--cache-dir", tmp_path, "--target", target, NO_COLOR="1")
    lines = ran.out.splitlines()
    assert ran.code == 1 and any("cudnn_version" in line for line in lines)
    assert all(len(line) <= 80 for line in lines if " " in line.strip())


@pytest.mark.parametrize("made", [[], ["flashinfer/autotune/0.7.2/sm90/" + KEY], ["unrelated/folder"]])
def test_nothing_to_verify_exits_with_2(tmp_path: Path, target: Path, made: list[str]) -> None:
    """A forgotten COPY must not pass an image build's check."""
    caches = tmp_path / "caches"
    for name in [".", *made]:
        (caches / name).mkdir(parents=True, exist_ok=True)
    for where in (("--cache-dir", caches), (caches,)):
        ran = run("verify", *where, "--target", target, "--strict", cwd=tmp_path)
        assert (ran.code, ran.out) == (2, "") and f"nothing to verify in {caches}" in ran.err


@pytest.mark.parametrize(
    "command", [("--model-path", "zai-org/GLM-5.1-FP8", "--tp", 8), (*MODEL, "--disable-flashinfer-autotune")]
)
def test_who_tunes_nothing_lacks_nothing(tmp_path: Path, target: Path, command: tuple[object, ...]) -> None:
    server = ("--", "python", "-m", "sglang.launch_server", *command)
    data = _report(run("verify", *_there(tmp_path, target), "--strict", *server))
    assert data["ok"] and data["files"] == [] and _codes(data) == {"tunes-nothing"}
    page = run("verify", "--cache-dir", tmp_path, "--target", target, *VERSIONS, *server)
    assert "info tunes-nothing: " in page.out and "it loads no cache, whatever files there are" in page.out
    (last,) = page.out.splitlines()[-1:]
    assert last.startswith("good: the next start loads no file: ") and " tunes nothing: " in last


def test_files_under_another_key_are_not_loaded(tmp_path: Path, target: Path) -> None:
    folder = _warmed(tmp_path)
    other = (*MODEL, "--tp", 2, "--pp", 2)
    data = _report(run("verify", folder, *other, "--target", target, "--format", "json", *VERSIONS))
    assert set(_verdicts(data)) == {"ignored", "missing"}
    said = "bad: other-folder, rank-missing; the next start loads 0 of 4 files; no server was asked"
    assert data["verdict"] == said


def test_a_newer_sglang_is_a_warning(tmp_path: Path, target: Path) -> None:
    write_ranks(cache_folder(tmp_path), rank_names(tp=1))
    ran = run("verify", "--cache-dir", tmp_path, "--target", target, "--server", "0.6.0")
    assert ran.code == 0 and "warning: SGLang 0.6.0 is newer than 0.5.23" in ran.err


def test_what_is_not_modelled_stands_with_the_verdict(tmp_path: Path) -> None:
    command = ("python", "-m", "sglang.launch_server", "--model-path", "DeepSeek-V3", "--cpu-offload-gb", "8")
    ran = run("verify", "--cache-dir", tmp_path, "--gpu", "sm100", "--", *command)
    assert ran.out.splitlines()[-1].endswith(
        "; not followed by the core: --cpu-offload-gb; a server answers for it: --server; no server was asked"
    )
