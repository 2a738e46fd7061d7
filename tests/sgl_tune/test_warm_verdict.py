"""`sgl-tune warm` of servers that tune nothing, or what cannot be planned: said first, nothing written."""

import json
from pathlib import Path

import pytest

from sgl_tune.deployment.options import ServerFlags
from sgl_tune.keys.plan import make_plan
from sgl_tune.keys.verdict import verdict_of
from tests.sgl_tune.planning import BLACKWELL, HOPPER, START, deployments, warm
from tests.sgl_tune.running import Ran, run_here

QWEN = ("--model-path", "Qwen3-30B-A3B")
UNTUNED = (*HOPPER, "--", f"{START} --model-path Qwen3-30B-A3B --disable-flashinfer-autotune")
NOTHING = (*QWEN, *HOPPER)
NEITHER = "tunes nothing: SGLang tunes no experts of MoE backend auto, and no unquantized GEMMs"


def _warm(cache: Path, *arguments: object) -> Ran:
    """No file, no folder, and no word of the device: nothing is looked at that is not needed."""
    ran = run_here("warm", "--cache-dir", cache, *arguments)
    assert list(cache.parent.iterdir()) == [] and "Traceback" not in ran.err
    return ran


@pytest.mark.parametrize(
    ("flags", "says"), [(NOTHING, NEITHER), (UNTUNED, "tunes nothing: --disable-flashinfer-autotune")]
)
def test_nothing_to_warm_is_said_without_files(tmp_path: Path, flags: tuple[object, ...], says: str) -> None:
    ran, dry = _warm(tmp_path / "cache", *flags), warm(*flags)
    assert ran.out.startswith(says) and (ran.code, ran.out.count("\n")) == (0, 1)
    assert (dry.code, dry.out.splitlines()[0]) == (0, ran.out.rstrip())
    told = _warm(tmp_path / "cache", "--format", "json", *flags)
    assert told.code == 0 and json.loads(told.out)["verdict"]["tunes"] == "nothing"
    quiet = _warm(tmp_path / "cache", "--format", "quiet", *flags)
    assert (quiet.code, quiet.out) == (0, "") and ": tunes " in quiet.err


def test_what_is_planned_and_has_no_kernels_here_is_refused_before_the_search(tmp_path: Path) -> None:
    mxfp4 = ("--model-path", "gpt-oss-120b", *BLACKWELL)
    assert warm(*mxfp4).ends(1, out="; no warm can tune them here: this runtime has no kernels of")
    ran = run_here("warm", "--cache-dir", tmp_path / "cache", *mxfp4)
    assert ran.code == 1 and "this runtime has no kernels of flashinfer_mxfp4" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_a_proof_leaves_no_doubt_of_an_unknown_flashinfer() -> None:
    (demo,) = deployments(ServerFlags.of(flashinfer_version="0.7.999"))
    before, after = (verdict_of(make_plan(demo, ()), is_proven) for is_proven in (False, True))
    assert (before.exit_code, after.exit_code) == (1, 0)
    assert "0.7.999 is not known here" in before.says and "not known" not in after.says
