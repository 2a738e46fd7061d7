"""What SGLang's own layers ask FlashInfer's autotuner for, recorded: every such lookup is planned.

Recorded from the wheels of the releases: each model was made by SGLang on tensors without data, each kind
of layer called with the rows of the server's largest batch, and FlashInfer's own tuner asked for the keys of
every profile it would measure. Its compiled kernels were left out, and nothing else of it.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.keys import expected_keys
from sgl_tune.keys.starts import never_starts
from tests.oracle.published import write_checkpoints

RECORDED = Path(__file__).parent / "recorded/lookups.jsonl.gz"
_PRODUCT = re.compile(r"\('\w+_gemm', '\w+', \(\((?:1, )?(?P<rows>\d+), \d+\)")
Keys = dict[str, tuple[Any, ...] | None]


def _recorded() -> Iterator[dict[str, Any]]:
    with gzip.open(RECORDED, "rt") as lines:
        yield from map(json.loads, lines)


SERVERS: dict[str, list[dict[str, Any]]] = defaultdict(list)
for _one in _recorded():
    SERVERS[f"{_one['release']} {_one['gpu']}"].append(_one)


_ENDS = ("no pipeline stages", "splits its heads over all", "plain beside nvfp4")


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints")
    write_checkpoints(folder)
    return folder


def _asked(recorded: dict[str, Any]) -> Keys:
    """With the policy each was measured under, where that FlashInfer has policies."""
    return {key: policy and tuple(policy) for policy, keys in recorded["asked"] for key in keys}


def _deployment(recorded: dict[str, Any]) -> Deployment:
    words = ["python", "-m", "sglang.launch_server", *recorded["argv"]]
    flags = ServerFlags(sglang_version=recorded["release"], gpu=recorded["gpu"])
    return select_deployments(flags, words, environ={})[0]


def _planned(deployment: Deployment) -> Keys:
    return {key: op.policy for op in expected_keys(deployment) for key in op.keys}


def _is_beyond(key: str, ours: Keys) -> bool:
    """The recorder showed attention's layers the rows of all DP groups: a server's see their own."""
    rows, same = _rows(key)
    return rows > max((_rows(one)[0] for one in ours if _rows(one)[1] == same), default=rows)


def _rows(key: str) -> tuple[int, str]:
    """Of a dense product's first operand, and the rest of its key."""
    found = _PRODUCT.match(key)
    return (int(found["rows"]), key[: found.start("rows")] + key[found.end("rows") :]) if found else (0, key)


@pytest.mark.parametrize("servers", SERVERS)
def test_the_lookups_of_sglangs_layers_are_planned_and_with_their_policies(
    servers: str, checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing else, where the recording is of all layers and of one rank's keys: most of them."""
    monkeypatch.chdir(checkpoints)
    for recorded in SERVERS[servers]:
        deployment = _deployment(recorded)
        ends = never_starts(deployment)
        if ends is not None:  # its layers were asked; its server ends before it asks them
            assert any(why in ends for why in _ENDS)
            continue
        ours, dp = _planned(deployment), deployment.server.attn_dp_size > 1
        asked = {
            key: policy for key, policy in _asked(recorded).items() if not (dp and _is_beyond(key, ours))
        }
        apart = [key for key, policy in asked.items() if policy is not None and ours.get(key) != policy]
        assert apart == [] and asked.keys() <= ours.keys(), recorded["argv"]
        assert not recorded["whole"] or ours.keys() == asked.keys(), recorded["argv"]


def test_every_release_and_many_models_are_recorded() -> None:
    recorded = [one for some in SERVERS.values() for one in some]
    assert len({one["release"] for one in recorded}) >= 6 and len(recorded) > 150
    assert sum(one["whole"] for one in recorded) > 100
    ops = {key.split("'")[1] for one in recorded for key in _asked(one)}
    assert len(ops) >= 9
