"""Ming: its text is Ling 2.0's, beside routers that no start asks, and what SGLang's class of it ends at."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from runtime.forward.comm import VirtualCommunicator
from runtime.models.decoder import Decoder
from runtime.models.encoder import EncoderWeights
from runtime.server.config import RuntimeConfig
from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from runtime.server.parallel_config import ParallelConfig
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from tests.runtime.families import make_reference, prompts, reference_logits, save
from tests.runtime.generation import Generation, make_runtime
from tests.sgl_tune.ends import PUBLISHED

MING = json.loads(PUBLISHED.read_text())["a/ming-flash-omni-2.0-without-sound"]
SOUND = {"whisper_encoder_config": {"n_ctx": 15000, "n_head": 20, "n_layer": 32}}
BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
META = torch.device("meta")
_TOWER = {"depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 24, "out_hidden_size": 32}
_STEPS = 3


def _text(**told: Any) -> dict[str, Any]:
    section = {**MING["llm_config"], **told}
    return {**MING, "llm_config": {name: one for name, one in section.items() if one != "missing"}}


def _saved(folder: Path, **told: Any) -> Any:
    """A Ling 2.0 inside of Ming, with routers for images and sounds."""
    model = make_reference("bailing_moe_v2", partial_rotary_factor=0.5)
    save(model, folder)
    file = folder / "model.safetensors"
    tensors = {f"model.{name}": tensor for name, tensor in load_file(file).items()}
    for name in [one for one in tensors if ".mlp.gate." in one]:
        for other in ("image_gate", "audio_gate"):
            tensors[name.replace(".mlp.gate.", f".mlp.{other}.")] = torch.rand_like(tensors[name])
    save_file(tensors, file)
    text = {**json.loads((folder / "config.json").read_text()), **told}
    turned = int(text["head_dim"] * text["partial_rotary_factor"])
    ming = {**MING, "mrope_section": [turned // 2 - 2, 1, 1], "llm_config": text, "vision_config": _TOWER}
    (folder / "config.json").write_text(json.dumps(ming))
    return model


def test_its_text_answers_as_ling_2_whatever_its_rope_is_called(tmp_path: Path) -> None:
    model = _saved(tmp_path, router_type="MultiRouter", rope_scaling={"type": "video_rope", "factor": 1})
    one, [text] = ParallelConfig(), prompts(11)
    rows = Generation(tmp_path, one, make_runtime(), VirtualCommunicator(one)).run([text], _STEPS)
    want = reference_logits(model, text)[-_STEPS - 1 :]
    torch.testing.assert_close(torch.stack(rows[0]), want, atol=1e-4, rtol=0)


def test_its_text_is_ling_2_whose_angles_begin_below_0() -> None:
    seeing = model_config(_text(router_type="topN"))
    own = {**MING["llm_config"], "router_type": "topN", "rope_scaling": None, "routed_scaling_factor": 2.5}
    text = model_config({**own, "torch_dtype": "bfloat16"})
    found, plain = seeing.attention["full"].rope, text.attention["full"].rope
    assert found is not None and plain is not None and found == replace(plain, max_position=65536)
    assert replace(seeing, attention=text.attention, encoder=None) == text


# As SGLang 0.5.23's own class was asked.
@pytest.mark.parametrize(
    ("told", "tp", "held"),
    [
        ({"mlp_depth": 1}, 2, [103052596224, 611954544]),
        ({"vision_config": None}, 1, [205909513216, 1196829152]),
        ({"llm_config": {**MING["llm_config"], "router_type": "topN"}}, 8, [25813376000, 214728604]),
        ({"llm_config": {**MING["llm_config"], "router_dtype": "fp32"}}, 8, [26138498048, 214728604]),
    ],
)
def test_a_rank_holds_as_many_bytes_as_sglangs_own(told: dict[str, Any], tp: int, held: list[int]) -> None:
    model, comm = model_config({**MING, **told}), VirtualCommunicator(ParallelConfig(tp=tp), tp - 1)
    assert model.encoder is not None
    text = Decoder(model, RuntimeConfig(), comm, META, range(model.num_layers))
    parts = text, EncoderWeights(model.encoder.weights, comm, torch.bfloat16, META)
    assert [sum(one.nbytes for one in part.parameters()) for part in parts] == held


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({**MING, "audio_config": SOUND}, "audio_config: SGLang's class of Ming ends at one"),
        ({**MING, "quantization_config": BLOCKS}, "quantization_config: here Ming is plain"),
        (
            {**MING, "vision_config": {"architectures": ["Qwen2_5_VisionTransformer"]}},
            "a tower of 'Qwen2_5_VisionTransformer': here it is Qwen3's alone",
        ),
        ({**MING, "vision_config": {"model_type": "qwen3_moe_vit"}}, "a tower of 'qwen3_moe_vit'"),
        (_text(head_dim=None, hidden_size=2048), "head_dim is missing: SGLang takes 64, and Ling 128"),
        ({**MING, "mrope_section": [16, 24, 24]}, "SGLang ends, as its heads turn 64 values"),
        (_text(num_key_value_heads="missing"), "num_key_value_heads is missing"),
        ({**MING, "llm_config": None}, "bailingmm_moe_v2_lite without a llm_config"),
    ],
)
def test_what_is_not_known_of_a_file_is_named(told: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config(told)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (_text(moe_router_enable_expert_bias=False), "with several routers SGLang ends without it"),
        (_text(rope_scaling={"type": "yarn", "factor": 2.0}), "factor is 2.0: SGLang would stretch by it"),
        (_text(rope_scaling={"type": "video_rope", "factor": None}), "factor is None: SGLang would"),
        (_text(router_type="other"), "router_type is 'other'"),
        ({**MING["llm_config"], "rope_scaling": None}, "router_type is 'MultiRouter'"),
    ],
)
def test_what_is_not_computed_is_named(told: dict[str, Any], said: str) -> None:
    assert any(said in one for one in model_config(told).obstacles)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"tp": 8}, None),
        ({"pp": 2}, "--pp beside images: each stage keeps a place for the tokens of all layers"),
        ({"quantization": "fp8", "moe_runner_backend": "triton"}, "quantized weights beside images"),
    ],
)
def test_which_servers_are_named(flags: dict[str, Any], said: str | None, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MING))
    usual = {"sglang_version": "0.5.23", "arch": "sm90", "tp": 4, "moe_runner_backend": "flashinfer_cutlass"}
    asked = ServerFlags(**{"model_path": str(tmp_path), **usual, **flags})
    shape = resolve_deployment(asked, environ={}).shape
    assert (shape.model is not None) if said is None else said in str(shape.unknown)
