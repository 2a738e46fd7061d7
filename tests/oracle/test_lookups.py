"""What SGLang's own layers ask FlashInfer's autotuner for, recorded: every such lookup is planned.

Recorded from the wheels of the releases: each model was made by SGLang on tensors without data, each kind
of layer called with the rows of the server's largest batch, and FlashInfer's own tuner asked for the keys of
every profile it would measure. Its compiled kernels were left out, and nothing else of it.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.keys import expected_keys
from tests.oracle.published import write_checkpoints

RECORDED = Path(__file__).parent / "recorded/lookups.jsonl.gz"
Keys = dict[str, tuple[Any, ...] | None]


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[dict[str, Any], Keys]]:
    """Each recorded server, and what is planned of it."""
    folder = tmp_path_factory.mktemp("checkpoints")
    write_checkpoints(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return [(recorded, _planned(recorded)) for recorded in _recorded()]


def _recorded() -> Iterator[dict[str, Any]]:
    with gzip.open(RECORDED, "rt") as lines:
        yield from map(json.loads, lines)


def _asked(recorded: dict[str, Any]) -> Keys:
    """With the policy each was measured under, where that FlashInfer has policies."""
    return {key: policy and tuple(policy) for policy, keys in recorded["asked"] for key in keys}


def _planned(recorded: dict[str, Any]) -> Keys:
    words = ["python", "-m", "sglang.launch_server", *recorded["argv"]]
    flags = ServerFlags(sglang_version=recorded["release"], gpu=recorded["gpu"])
    (deployment,) = select_deployments(flags, words, environ={})
    return {key: op.policy for op in expected_keys(deployment) for key in op.keys}


def test_every_lookup_of_sglangs_layers_is_planned_and_with_its_policy(
    planned: list[tuple[dict[str, Any], Keys]],
) -> None:
    apart = [
        (recorded["release"], recorded["gpu"], recorded["argv"], key)
        for recorded, ours in planned
        for key, policy in _asked(recorded).items()
        if key not in ours or (policy is not None and ours[key] != policy)
    ]
    assert apart == []


def test_nothing_but_their_lookups_is_planned(planned: list[tuple[dict[str, Any], Keys]]) -> None:
    """Where the recording is of all layers and of one rank's keys: most of them."""
    whole = [(recorded, ours) for recorded, ours in planned if recorded["whole"]]
    assert [recorded["argv"] for recorded, ours in whole if ours.keys() != _asked(recorded).keys()] == []
    assert len(whole) > 100


def test_every_release_and_many_models_are_recorded() -> None:
    recorded = list(_recorded())
    assert len({one["release"] for one in recorded}) >= 6 and len(recorded) > 150
    ops = {key.split("'")[1] for one in recorded for key in _asked(one)}
    assert len(ops) >= 9
