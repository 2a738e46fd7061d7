"""Jet-Nemotron: what its file has to tell, what its states take, and which of its servers end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from runtime.server.unpredicted import knows_forwards
from runtime.server.windows import windows_of
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.starts import never_starts
from tests.sgl_tune.ends import PUBLISHED

_TWO, _FOUR = (json.loads(PUBLISHED.read_text())[f"jet-ai/Jet-Nemotron-{size}B"] for size in (2, 4))


def _deployment(folder: Path, **flags: Any) -> Deployment:
    (folder / "config.json").write_text(json.dumps(_TWO))
    asked = {"model_path": str(folder), "sglang_version": "0.5.23", "arch": "sm90", **flags}
    return resolve_deployment(ServerFlags(**asked), environ={})


def _told(**block: Any) -> dict[str, Any]:
    parts = _TWO["efficient_attention_config"]
    jet = {name: value for name, value in {**parts["jet"], **block}.items() if value is not None}
    return {"efficient_attention_config": {**parts, "jet": jet}}


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"tie_word_embeddings": None}, "tie_word_embeddings is missing"),
        ({"efficient_attention_config": {"swa": {"window_size": 8}}}, "jet is None: an object is needed"),
        (_told(mode=None), "jet has no mode"),
        (_told(norm_eps="small"), "norm_eps is 'small'"),
        (_told(dconv_generator_reduction=4096), "a generator's rows is 0"),
        ({"layer_types": ["mamba"] * 28}, "layer_types names 'mamba'"),
        (
            {"efficient_attention_config": {**_TWO["efficient_attention_config"], "swa": {}}},
            "sliding_window is None",
        ),
    ],
)
def test_what_is_not_known_of_a_file_is_named(told: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config({**_TWO, **told})


@pytest.mark.parametrize(
    ("told", "conv", "recurrent", "narrow"),
    [(_TWO, 3072 + 2 * 12 * 96, (12, 256, 96), 384), (_FOUR, 4096 + 2 * 16 * 128, (16, 256, 128), 512)],
)
def test_states_are_those_of_sglangs_config_class(
    told: dict[str, Any], conv: int, recurrent: tuple[int, int, int], narrow: int
) -> None:
    config = model_config(told).recurrent
    assert config is not None and getattr(config, "generator_size", None) == narrow
    shape = config.state_shape(1)
    assert (shape.conv, shape.recurrent) == ((conv, 3), recurrent)


def test_attention_is_told_of_its_windows_and_a_start_is_known_up_to_its_first_forward() -> None:
    model = model_config(_TWO)
    assert windows_of(model).tokens == 1152 + 1 and not windows_of(model).apart
    assert not knows_forwards(model)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({}, None),
        ({"sglang_version": "0.5.22"}, None),
        ({"sglang_version": "0.5.21"}, "before 0.5.22 takes the list"),
        ({"tp": 2}, "look for the heads of all 2 ranks on each: --tp-size 1"),
        ({"pp": 2}, "has no pipeline stages"),
    ],
)
def test_which_servers_end(flags: dict[str, Any], why: str | None, tmp_path: Path) -> None:
    found = never_starts(_deployment(tmp_path, **flags))
    assert (found is None) if why is None else (found is not None and why in found)


@pytest.mark.parametrize(
    ("not_served", "said"),
    [
        ("--quantization fp8", "quantized weights"),
        ("--speculative-algorithm NGRAM --speculative-num-draft-tokens 4", "drafts"),
        ("--linear-attn-backend flashinfer", "a --linear-attn-backend but triton"),
    ],
)
def test_what_its_class_is_not_written_for_has_a_key_alone(
    not_served: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(_TWO))
    flags = ServerFlags(sglang_version="0.5.23", arch="sm90")
    command = f"python -m sglang.launch_server --model-path {tmp_path} {not_served} --max-running-requests 8"
    refused = select_deployments(flags, command=command.split())[0]
    assert refused.shape.model is None and refused.server.key
    assert f"jet_nemotron does not go with {said}" in refused.shape.unknown
