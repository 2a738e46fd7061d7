"""What SGLang's own layers ask FlashInfer's autotuner for, recorded: every such lookup is planned.

Recorded from the wheels of the releases: each model was made by SGLang on tensors without data, each kind
of layer called with the rows of the server's largest batch, and FlashInfer's own tuner asked for the keys of
every profile it would measure. Its compiled kernels were left out, and nothing else of it.
"""

from __future__ import annotations

import gzip
import json
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
Keys = dict[str, tuple[Any, ...] | None]


def _recorded() -> Iterator[dict[str, Any]]:
    with gzip.open(RECORDED, "rt") as lines:
        yield from map(json.loads, lines)


SERVERS: dict[str, list[dict[str, Any]]] = defaultdict(list)
for _one in _recorded():
    SERVERS[f"{_one['release']} {_one['gpu']}"].append(_one)


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


@pytest.mark.parametrize("servers", SERVERS)
def test_the_lookups_of_sglangs_layers_are_planned_and_with_their_policies(
    servers: str, checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing else, where the recording is of all layers and of one rank's keys: most of them."""
    monkeypatch.chdir(checkpoints)
    for recorded in SERVERS[servers]:
        deployment = _deployment(recorded)
        if deployment.model.model_type == "llama4_text" and deployment.parallel.pp > 1:
            assert "no pipeline stages" in str(never_starts(deployment))
            continue  # its layers were asked; its server ends before it asks them
        ours, asked = _planned(deployment), _asked(recorded)
        apart = [key for key, policy in asked.items() if policy is not None and ours.get(key) != policy]
        assert apart == [] and asked.keys() <= ours.keys(), recorded["argv"]
        assert not recorded["whole"] or ours.keys() == asked.keys(), recorded["argv"]


def test_every_release_and_many_models_are_recorded() -> None:
    recorded = [one for some in SERVERS.values() for one in some]
    assert len({one["release"] for one in recorded}) >= 6 and len(recorded) > 150
    assert sum(one["whole"] for one in recorded) > 100
    ops = {key.split("'")[1] for one in recorded for key in _asked(one)}
    assert len(ops) >= 9
