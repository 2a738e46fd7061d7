"""What times of now say of entries that were timed then."""

import json
from hashlib import sha256
from pathlib import Path

import pytest

from sgl_tune.cache.asked import Timed
from sgl_tune.cache.manifest import Manifest
from sgl_tune.verify.environment import Target
from sgl_tune.verify.findings import VerifyReport
from sgl_tune.verify.replayed import ReplayedCache, judge_replay, replay_line
from sgl_tune.verify.verdict_line import verdict_line
from tests.sgl_tune.cache.caches import HERE, cache_folder, good, write_ranks
from tests.sgl_tune.cache.corpus import TARGET, moe_key

Times = tuple[float | None, float | None]


def _judge(
    folder: Path, now: Times, then: Times | None = None, written: bytes | None = None, target: Target = HERE
) -> ReplayedCache:
    (path,) = write_ranks(cache_folder(folder), ["rank_tp0_pp0_dp0.json"])
    measured = {} if then is None else {moe_key(8): {"best_ms": then[0], "default_ms": then[1]}}
    digest = sha256(written or path.read_bytes()).hexdigest()
    manifest = Manifest(TARGET, driver="550", files={path.name: digest}, measured=measured)
    failed = "no such kernel" if now[0] is None else None
    timed = Timed("trtllm::fused_moe::gemm1", 8, moe_key(8), 23, *now, failed)
    return judge_replay(path, [timed], manifest, target)


@pytest.mark.parametrize(
    ("now", "then", "state"),
    [
        ((1.0, 1.3), (1.0, 1.3), "holds"),
        ((1.0, 0.96), None, "holds"),  # as good as the default
        ((1.0, 0.94), None, "beaten"),
        ((1.0, 0.94), (1.0, 1.5), "beaten"),
        ((1.0, 1.2), (1.0, 1.5), "faded"),
        ((1.0, 1.3), (1.0, 1.5), "holds"),
        ((1.0, 1.0), (1.0, 1.08), "holds"),  # it never gained much
        ((1.0, None), (1.0, 1.5), "holds"),  # the default cannot run
        ((1.0, 1.2), (None, None), "holds"),
        ((None, 1.0), (1.0, 1.5), "fails"),
    ],
)
def test_choices_hold_lose_fade_or_fail(now: Times, then: Times | None, state: str, tmp_path: Path) -> None:
    replayed = _judge(tmp_path, now, then)
    assert [one.state for one in replayed.judgements] == [state]
    codes = {"holds": [], "beaten": ["stale-choice"], "faded": ["faded-choice"], "fails": ["replay-fails"]}
    assert [found.code for found in replayed.findings] == codes[state]
    assert json.dumps(replayed.to_json())
    holds, is_lost = replay_line([replayed]), state in ("beaten", "fails")
    assert holds.startswith(f"timed again, {0 if is_lost else 1} of 1 choice hold")
    report = VerifyReport((), replayed.findings)
    assert report.ok() != is_lost and holds in verdict_line(report, (), report.ok(), replay=holds)


def test_other_clocks_are_no_choices_fault(tmp_path: Path) -> None:
    replayed = _judge(tmp_path, (1.2, 1.56), (1.0, 1.3))
    assert [found.code for found in replayed.findings] == ["other-clocks"]
    assert "1.20 times" in replayed.findings[0].message and "driver 550 then" in replayed.findings[0].message


def test_what_was_measured_counts_for_the_file_it_was_written_with(tmp_path: Path) -> None:
    replayed = _judge(tmp_path, (2.0, 2.0), (1.0, 1.5), written=good() + b" ")
    assert replayed.findings == () and replayed.judgements[0].then_best_ms is None
