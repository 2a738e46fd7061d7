"""MOSS-VL: a Qwen3 some of whose layers attend to images: graphs run them, requests without one skip them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from runtime.forward.batch import LogitsMode, make_extend_batch
from runtime.forward.comm import VirtualCommunicator
from runtime.models.crossing_layer import CrossingLayer
from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from runtime.server.parallel_config import ParallelConfig
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.errors import UsageError
from sgl_tune.keys.starts import never_starts
from tests.memory.checkpoints import checkpoints
from tests.runtime.families import make_reference, prompts, reference_logits, save
from tests.runtime.generation import Generation, make_runtime
from tests.sgl_tune.ends import served

MOSS = next(one.config for one in checkpoints() if "/moss-vl-" in one.name)
TEXT, TOWER = "text_config", "vision_config"


def test_a_graph_runs_them_and_answers_the_same(tmp_path: Path) -> None:
    reference, alone = make_reference("moss_vl_text"), ParallelConfig()
    one = Generation(save(reference, tmp_path), alone, make_runtime(), VirtualCommunicator(alone))
    ran: list[int] = []
    for layer in one.decoder.layers:
        if isinstance(layer, CrossingLayer):
            layer.mixer.register_forward_hook(lambda *_, number=layer.number: ran.append(number))
    [text] = prompts(17)
    for captured in (False, True):
        requests = one.pool.requests.allocate(1)
        batch = make_extend_batch([text], requests, one.pool, logits_mode=LogitsMode.ALL)
        answer = one.decoder(replace(batch, captured=captured), one.pool).full_logits
        torch.testing.assert_close(answer, reference_logits(reference, text), atol=1e-4, rtol=0)
        assert ran == ([1, 2] if captured else [])


def test_a_quarter_of_its_layers_attends_to_images() -> None:
    model = model_config(MOSS)
    seeing = [layer for layer, kind in enumerate(model.attention_kinds) if kind == "cross"]
    assert seeing == [*range(2, 48, 4)] and not model.obstacles and not model.adds_at_once
    named = {one.name: (one.shape, one.layers) for one in model.encoder.weights} if model.encoder else {}
    assert named["visual.merger.linear_fc1.weight"] == ((4 * 4 * 1152, 4 * 4 * 1152), 1)
    assert named["visual.merger.norms.norm.weight"] == ((1152,), 4)


@pytest.mark.parametrize(
    ("section", "told", "said"),
    [
        (TEXT, {"tie_word_embeddings": True}, "tie_word_embeddings is True"),
        (TEXT, {"hidden_act": "swish"}, "hidden_act is 'swish'"),
        (TEXT, {"rope_parameters": {"rope_type": "default"}}, "rope_parameters is"),
        (TEXT, {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "computes a rope_type of default"),
        (TEXT, {"rope_scaling": {"type": "default"}}, "computes a rope_type of default"),
        (TEXT, {"cross_attention_layers": []}, "names none of its layers, or all"),
        (TEXT, {"rope_theta": ...}, "rope_theta is missing"),
        (TEXT, {"cross_attention_layers": ...}, "cross_attention_layers is missing"),
        (TOWER, {"deepstack_visual_indexes": ...}, "deepstack_visual_indexes is missing"),
        (TOWER, {"depth": ...}, "depth is None: a positive whole number is needed"),
        (TOWER, {"out_hidden_size": 64}, "out_hidden_size is 64: its text is 4096 wide"),
    ],
)
def test_what_is_not_known_of_a_file_is_named(section: str, told: dict[str, Any], said: str) -> None:
    part = {name: one for name, one in {**MOSS[section], **told}.items() if one is not ...}
    with pytest.raises(ConfigError, match=said):
        for one in model_config({**MOSS, section: part}).obstacles:
            raise ConfigError(one)


@pytest.mark.parametrize("release", ["0.5.12", "0.5.23"])
@pytest.mark.parametrize(
    ("words", "ends", "unknown"),
    [
        ("", "", ""),
        ("--tp 8", "", ""),
        ("--prefill-attention-backend flashinfer --decode-attention-backend triton", "triton has not", ""),
        ("--tp 16", "8 KV heads are fewer than 16 ranks, which MOSS-VL's graphs", ""),
        ("--tp 16 --disable-cuda-graph", "", "more ranks than KV heads"),
        ("--pp-size 2", "", "--pp: its class has no stages"),
        ("--quantization fp8", "", "quantized weights"),
    ],
)
def test_which_servers_end_and_which_are_not_known(
    words: str, ends: str, unknown: str, release: str, tmp_path: Path
) -> None:
    found = _deployment(tmp_path, words, release)
    said = never_starts(found)
    assert said is None if not ends else said is not None and ends in said
    assert unknown in str(found.shape.unknown) if unknown else ends or not found.shape.unknown


def test_a_file_of_its_text_alone_ends(tmp_path: Path) -> None:
    alone = {**MOSS, **MOSS[TEXT], TEXT: None, TOWER: None, "model_type": "moss_vl_text"}
    said = never_starts(_deployment(tmp_path, hf=alone))
    assert said is not None and "SGLang's class takes that as a section, beside a tower" in said


def test_prefills_are_on_flashinfer_alone(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not run on attention backend triton"):
        _deployment(tmp_path, "--attention-backend triton")


@pytest.mark.parametrize(("tunes_prefills", "ends"), [("0", False), ("1", True)])
def test_a_prefill_that_kernels_are_tuned_with_ends(tunes_prefills: str, ends: bool, tmp_path: Path) -> None:
    words = "--moe-runner-backend flashinfer_trtllm"
    environ = {"SGLANG_FLASHINFER_AUTOTUNE_EXTEND": tunes_prefills}
    said = never_starts(_deployment(tmp_path, words, environ=environ))
    assert ("which images are kept" in said if said else False) == ends


def _deployment(
    folder: Path,
    words: str = "",
    release: str = "0.5.23",
    environ: dict[str, str] | None = None,
    hf: dict[str, Any] = MOSS,
) -> Deployment:
    return served(folder, hf, f"--trust-remote-code {words}", release, environ=environ)
