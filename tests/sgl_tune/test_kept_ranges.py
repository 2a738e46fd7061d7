"""Which entries graphs look up where each call of CUTLASS's experts names a range of its own."""

from __future__ import annotations

from collections import Counter

import pytest

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.kept_ranges import kept_ranges, told_ranges
from sgl_tune.keys.plan import make_plan

# What SGLang 0.5.17 asked FlashInfer 0.7.2 for while it captured graphs of Qwen3-30B-A3B on an H200: captures
# of each bucket, behind a dummy batch of 4,096 rows, with decode graphs of up to 64 requests.
_SMALL = (128, 4), (64, 2), (32, 4), (16, 2), (8, 1)
_LARGE = (8192, 8), (4096, 2), (3584, 2), (3072, 2), (2560, 2), (2048, 1), (1792, 1), (1536, 1), (1280, 1)
ASKED = Counter(dict((*_LARGE, (1024, 4), (768, 4), (512, 8), (256, 8), *_SMALL, (4, 11), (2, 1), (1, 1))))
ASKED_BY_DECODES = Counter({64: 4, 32: 2, 16: 2, 8: 1, 4: 1, 2: 1, 1: 1})


def _served(release: str, words: str = "", backend: str = "flashinfer_cutlass") -> Deployment:
    line = f"python -m sglang.launch_server --model-path Qwen3-30B-A3B --moe-runner-backend {backend} {words}"
    return select_deployments(ServerFlags(gpu="H200", sglang_version=release), command=line.split())[0]


def test_graphs_look_up_what_a_real_start_looked_up() -> None:
    found = kept_ranges(_served("0.5.17", "--cuda-graph-max-bs-decode 64"))
    assert found is not None and len(found.prefills) == 58
    assert Counter(bucket for _, bucket in (*found.prefills, *found.decodes)) == ASKED
    assert {bucket for rows, bucket in found.decodes if rows >= 4} == {4}
    assert (found.last, found.largest) == (1, 8192)


def test_decode_graphs_alone_look_up_their_own() -> None:
    """As the same start without graphs of prefills did."""
    one = _served("0.5.17", "--cuda-graph-max-bs-decode 64 --cuda-graph-backend-prefill disabled")
    found = kept_ranges(one)
    assert found is not None and not found.prefills
    assert Counter(bucket for _, bucket in found.decodes) == ASKED_BY_DECODES
    assert told_ranges(one) == (
        "prefills beside graphs run the experts of 1 rows until one has more than 4096: SGLang 0.5.17 names "
        "FlashInfer a range in each call, which keeps the last that was new",
    )


@pytest.mark.parametrize(
    ("release", "backend", "told"),
    [
        ("0.5.22", "flashinfer_cutlass", True),
        ("0.5.23", "flashinfer_cutlass", False),  # one range for all
        ("0.5.22", "triton", False),
    ],
)
def test_a_plan_says_so(release: str, backend: str, told: bool) -> None:
    notes = make_plan(_served(release, "", backend), ()).notes
    assert any(one.startswith("decode graphs of") for one in notes) == told, notes
