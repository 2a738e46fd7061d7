"""`sgl-tune doctor`: one line, and verify's exit code."""

import json
import shlex
from pathlib import Path

import pytest

from sgl_tune.verify.environment import UNTOLD, Target
from tests.sgl_tune.cache.caches import cache_folder, rank_names, write_ranks
from tests.sgl_tune.cache.corpus import TARGET
from tests.sgl_tune.planning import START
from tests.sgl_tune.running import Ran, run_here
from tests.sgl_tune.schemas import schema_faults
from tests.sgl_tune.servers.made import server

SERVER = ("--server", "core", "--", *START.split(), "--model-path", "Qwen3-30B-A3B")
TUNED = ("--moe-runner-backend", "flashinfer_cutlass")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SGLANG_CACHE_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _on(machine: Target, patch: pytest.MonkeyPatch) -> Ran:
    patch.setattr("sgl_tune.commands.doctor.target_here", lambda: machine)
    ran = run_here("doctor")
    assert ran.out.count("\n") == 1
    return ran


def test_files_are_used_where_they_load_or_not_known(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_ranks(cache_folder(root), rank_names(tp=2))
    ran = _on(Target.of(TARGET, "this machine", "sm90"), monkeypatch)
    assert ran.code == 0 and ran.out.startswith("used: 2 of 2 files load")
    ran = _on(Target.of({**TARGET, "cuda_version": "12.9"}, "this machine", "sm90"), monkeypatch)
    assert ran.code == 1 and ran.out.startswith("not used: ") and "12.9" in ran.out
    ran = _on(UNTOLD, monkeypatch)
    assert ran.code == 1 and ran.out.startswith("not known: 2 of 2 files load")
    assert "not compared with this machine" in ran.out and "sgl-tune verify --target env.json" in ran.out


def test_a_fix_with_an_option_that_doctor_lacks_names_verify(root: Path) -> None:
    ran = run_here("doctor", *SERVER[:-1], "org/nobody")
    fix = ran.err.rpartition("; in full: ")[2].split()
    assert ran.code == 2 and fix[:6] == ["sgl-tune", "verify", "--server", "core", "--model-config", "FILE"]
    fix[fix.index("FILE")] = "Qwen3-30B-A3B"
    assert run_here(*fix[1:]).code == 0


def test_a_missing_cache_is_said_with_what_makes_it(root: Path) -> None:
    ran = run_here("doctor", *SERVER)
    assert ran.code == 0 and ran.out.startswith("nothing to use: the next start loads no file")
    ran = run_here("doctor", "--format", "json", *SERVER, *TUNED)
    told = json.loads(ran.out)
    assert schema_faults("doctor", told) == [] and (ran.code, told["used"], told["ok"]) == (1, False, False)
    assert told["verdict"].startswith("not used: ")
    words = told["fix"].split()
    assert words[:4] == ["sgl-tune", "warm", "--server", "core"]
    assert run_here(*words[1:2], "--dry-run", *words[2:]).code == 0
    assert run_here("doctor", *SERVER, *TUNED).out == f"{told['verdict']}; fix: {told['fix']}\n"


def test_the_fix_names_the_file_that_was_named(root: Path) -> None:
    (root / "start.sh").write_text(" ".join([*START.split(), "--model-path", "Qwen3-30B-A3B", *TUNED]))
    ran = run_here("doctor", "--server", "core", "-f", "start.sh")
    assert ran.code == 1 and ran.out.endswith("; fix: sgl-tune warm --server core -f start.sh\n")
    write_ranks(cache_folder(root), rank_names(tp=2))
    ran = run_here("doctor", "--server", "core", "-f", "start.sh")
    assert ran.code == 1 and ran.out.startswith("not used: if its GPU is that of the caches here, NVIDIA H")
    named = ("--server", "core", "--gpu", "h200", "--cache-dir", root, "-f", "start.sh")
    ran = run_here("verify", *named)
    fix = f"sgl-tune warm --server core --gpu h200 --cache-dir {root} -f start.sh"
    assert ran.code == 1 and ran.out.count(fix) == 1
    assert run_here("verify", "--format", "github", *named).out.count(fix) == 1


PULL = "sgl-tune pull oci://r/c; exec "
POD = """spec: {containers: [{name: s, image: "lmsysorg/sglang:v0.5.23", command: [sh, -c, "%spython -m
  sglang.launch_server --model-path Qwen3-30B-A3B --moe-runner-backend flashinfer_cutlass"],
  volumeMounts: [{name: c, mountPath: /root/.cache}]}, %s], volumes: [{name: c, %s}]}"""
CLAIM, EMPTY = "persistentVolumeClaim: {claimName: caches}", "emptyDir: {}"
BESIDE = "{name: fills, volumeMounts: [{name: c, mountPath: /c}]}"


@pytest.mark.parametrize(
    ("pod", "where"),
    [
        (POD % ("", "", CLAIM), "on persistentVolumeClaim caches"),
        (POD % ("", "", "hostPath: {path: /no/such}"), "on hostPath /no/such"),
        (POD % ("", BESIDE, EMPTY), "on emptyDir c (mounted by fills, too)"),
        (POD % (PULL, "", EMPTY), "on emptyDir c"),
        (POD % ("", "", EMPTY), None),
        (POD % ("export A=1; ", "", EMPTY), None),
    ],
)
def test_a_volume_elsewhere_is_not_known_and_an_empty_one_is_bad(root: Path, pod: str, where: str) -> None:
    (root / "pod.yaml").write_text(pod)
    named = ("--server", "core", "-f", "pod.yaml")
    told = [json.loads(run_here("verify", "--format", "json", "--gpu", "h200", *named).out)]
    told += [json.loads(run_here("doctor", "--format", "json", *named).out)]
    server(root / "venv", "0.5.23")  # which cannot start
    ran = run_here("doctor", "--server", root / "venv", "-f", "pod.yaml")
    assert ran.code == 1 and ran.err == "" and ran.out.startswith(f"{told[1]['verdict']}; fix: ")
    (root / "idle.yaml").write_text(pod.replace("--moe-runner-backend flashinfer_cutlass", ""))
    assert run_here("doctor", "--server", root / "venv", "-f", "idle.yaml").err.startswith("Asking SGLang")
    codes, verdicts = {file["verdict"] for file in told[0]["files"]}, [one["verdict"] for one in told]
    assert [one["ok"] for one in told] == [False, False] and schema_faults("verify", told[0]) == []
    if where is None:
        assert codes == {"missing"} and verdicts[0].startswith("bad: cache-not-kept; ")
        assert verdicts[1].startswith("not used: ") and "docs/init-container.md" in told[1]["fix"]
    else:
        assert codes == {"unknown"} and set(verdicts) == {
            f"not known: the cache is {where}, which is not here"
        }
        words = shlex.split(told[1]["fix"].partition(": ")[2])
        assert words[:2] == ["sgl-tune", "doctor"] and "sgl-tune warm" in run_here(*words[1:]).out
