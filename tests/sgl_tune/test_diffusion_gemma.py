"""DiffusionGemma's servers: which end, which are not known, and how far a start is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from runtime.forward.comm import VirtualCommunicator
from runtime.models.decoder import Decoder
from runtime.server.config import RuntimeConfig
from runtime.server.decoders.known import model_config
from runtime.server.parallel_config import ParallelConfig
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.keys import asks_nothing
from sgl_tune.keys.starts import never_starts
from sgl_tune.memory.predict import predict
from sgl_tune.memory.start import starts_of
from tests.runtime.families import config_json, make_reference, save
from tests.sgl_tune.ends import PUBLISHED

_NAME = "a/diffusiongemma-as-large-as-gemma-4-26b"
_FILE: dict[str, Any] = json.loads(PUBLISHED.read_text())[_NAME]
_BLOCKS = "--dllm-algorithm Gemma4Renoise"


def _deployment(folder: Path, told: str, file: dict[str, Any] = _FILE, **flags: Any) -> Deployment:
    (folder / "config.json").write_text(json.dumps(file))
    command = f"python -m sglang.launch_server --model-path {folder} {told}"
    asked = ServerFlags(**{"arch": "sm90", "sglang_version": "0.5.23", **flags})
    return select_deployments(asked, command=command.split())[0]


@pytest.mark.parametrize(
    ("told", "release", "why"),
    [
        *((_BLOCKS, release, None) for release in ("0.5.21", "0.5.22", "0.5.23")),
        ("", "0.5.23", "answers canvases alone: --dllm-algorithm Gemma4Renoise"),
        ("--attention-backend triton", "0.5.21", "answers canvases alone"),
    ],
)
def test_which_servers_end(told: str, release: str, why: str | None, tmp_path: Path) -> None:
    found = never_starts(_deployment(tmp_path, told, sglang_version=release))
    assert (found is None) if why is None else (found is not None and why in found)


def test_layers_that_are_told_apart_are_read_since_0_5_22(tmp_path: Path) -> None:
    text = {name: one for name, one in _FILE["text_config"].items() if "global" not in name}
    apart = {str(layer): {"head_dim": 512, "num_key_value_heads": 2} for layer in range(5, 30, 6)}
    file = {**_FILE, "text_config": {**text, "per_layer_config": apart}}
    before, since = (
        never_starts(_deployment(tmp_path, _BLOCKS, file, sglang_version=one)) for one in ("0.5.21", "0.5.22")
    )
    assert "per_layer_config is told" in str(before) and since is None


@pytest.mark.parametrize(
    ("told", "flags", "said"),
    [
        ("", {"sglang_version": "0.5.20"}, "releases before 0.5.21"),
        (f"{_BLOCKS} --moe-runner-backend flashinfer_cutlass", {}, "a MoE backend but triton"),
        (f"{_BLOCKS} --attention-backend fa4", {"arch": "sm100"}, "attention but on triton"),
        (f"{_BLOCKS} --tp 2 --moe-a2a-backend deepep", {}, "an all-to-all"),
        (f"{_BLOCKS} --tp 2 --ep 2 --ep-num-redundant-experts 2", {}, "experts that move"),
        (f"{_BLOCKS} --tp 4 --dp 2 --enable-dp-attention", {}, "DP attention"),
        (f"{_BLOCKS} --tp 8 --ep 8", {}, None),
        (f"{_BLOCKS} --moe-runner-backend triton", {"arch": "sm100"}, None),
    ],
)
def test_what_of_its_servers_is_not_known(
    told: str, flags: dict[str, Any], said: str | None, tmp_path: Path
) -> None:
    found = _deployment(tmp_path, told, **flags)
    assert found.server.key
    if said is None:
        assert found.shape.model is not None and asks_nothing(found) and not found.server.tunes
    else:
        assert found.shape.unknown.startswith(f"diffusion_gemma_text does not go with {said}")


@pytest.mark.parametrize(
    ("told", "named"),
    [("", ("decode graphs", "ready")), ("--disable-cuda-graph", ())],
)
def test_a_start_is_known_up_to_its_first_forward(told: str, named: tuple[str, ...], tmp_path: Path) -> None:
    text = {**_FILE["text_config"], "num_hidden_layers": 6, "num_experts": 8}
    asked = f"{_BLOCKS} --max-running-requests 512 --max-total-tokens 4096 {told}"
    deployment = _deployment(tmp_path, asked, {**_FILE, "text_config": text}, gpu="h200", arch=None)
    report = predict(starts_of(deployment, "0")[0])
    before = ["communicator", "weights", "kv pool", "attention backend", "eager buffers"]
    assert [one.name for one in report.phases] == [*before, *([] if named else ["ready"])]
    assert report.not_predicted == named
    held = {one.bytes for one in report.phases[4].largest}
    assert 8 * 512 * 256 in held  # of inputs: each request may bring a canvas


def test_what_the_last_step_found_is_held_and_layers_count_twice(tmp_path: Path) -> None:
    reference = make_reference("diffusion_gemma")
    folder, model = save(reference, tmp_path / "saved"), model_config(config_json(reference))
    one = ParallelConfig()
    runtime = RuntimeConfig(dtype="float32", moe_runner_backend="triton")
    decoder = Decoder(model, runtime, VirtualCommunicator(one), torch.device("cpu"), range(2))
    decoder.load_hf(folder)
    theirs, ours = reference.model.decoder, decoder.conditioning
    assert ours is not None and torch.equal(ours.before.weight, theirs.self_conditioning.pre_norm.weight)
    for layer, prompts, canvases in zip(
        decoder.layers, reference.model.encoder.language_model.layers, theirs.layers, strict=True
    ):
        assert torch.equal(layer.scale, prompts.layer_scalar)
        assert torch.equal(layer.canvas_scale, canvases.layer_scalar)
        assert not torch.equal(layer.scale, layer.canvas_scale)
