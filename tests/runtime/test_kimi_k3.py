"""Kimi K3: what its file may say, what stages keep of residuals, what a server makes after loading."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from runtime.devices.cpu import Cpu
from runtime.forward.batch import make_decode_batch, make_extend_batch
from runtime.forward.comm import Communicator, VirtualCommunicator
from runtime.forward.logits_processor import LogitsOutput
from runtime.layers import snapshot_ops
from runtime.layers.mlp import situ
from runtime.models.decoder import Decoder
from runtime.models.kimi_delta import KimiDelta
from runtime.server.config import RuntimeConfig
from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from runtime.server.parallel_config import ParallelConfig
from runtime.server.recurrent import StateRules
from runtime.start.model_runner import ModelRunner
from runtime.start.options import StartOptions
from tests.memory.checkpoints import published_config
from tests.runtime.config_files import config_file
from tests.runtime.hybrids import make_hybrid
from tests.runtime.ranks import Ranks
from tests.runtime.starts import make_runtime

_NAME = "a/kimi-k3-of-the-sizes-that-sglang-names"
_WHOLE = published_config(_NAME)
META = torch.device("meta")


def _with_tower(**told: Any) -> dict[str, Any]:
    return {**_WHOLE, "vision_config": {**_WHOLE["vision_config"], **told}}


def test_its_text_is_told_by_its_architecture_or_stands_in_a_wrapper() -> None:
    text = {**_WHOLE["text_config"], "architectures": ["KimiK3LinearForCausalLM"]}
    inside, alone = model_config(_WHOLE), model_config(text)
    assert inside.model_type == alone.model_type == "kimi_k3_text" and inside.layer_kinds == alone.layer_kinds
    assert alone.encoder is None and inside.encoder is not None
    assert model_config({**text, "architectures": ["KimiLinearForCausalLM"]}).obstacles


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"norm_type": "other"}, "norm_type is 'other'"),
        ({"pos_emb_type": "other"}, "pos_emb_type is 'other'"),
        ({"merge_type": "other"}, "merge_type is 'other'"),
        ({"activation_func": "relu"}, "activation_func is 'relu'"),
        ({"merge_kernel_size": [2]}, "merge_kernel_size is"),
    ],
)
def test_a_tower_that_its_class_has_not_is_refused(told: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config(_with_tower(**told))


def test_a_tower_is_whole_on_every_rank_and_as_wide_as_it_says() -> None:
    encoder = model_config(_with_tower(norm_type="layernorm", attn_bias=True, linear_bias=True)).encoder
    usual = model_config(_WHOLE).encoder
    assert encoder is not None and usual is not None
    assert all(one.split is None for one in usual.weights) and not usual.may_be_whole
    more = {one.name: one.shape for one in encoder.weights if one not in usual.weights}
    blocks = "vision_tower.encoder.blocks."
    assert more[f"{blocks}wqkv.bias"] == (3 * 1536,) and more[f"{blocks}mlp.fc0.bias"] == (4096,)
    assert more[f"{blocks}norm0.bias"] == (1024,) and len(more) == 7


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"activation_situ_beta": 0.0}, "activation_situ_beta, or that of ups, is"),
        ({"activation_situ_linear_beta": -1.0}, "activation_situ_beta, or that of ups, is"),
        ({"kv_lora_rank": None}, "kv_lora_rank is None"),
        ({"attn_res_block_size": 0}, "attn_res_block_size is 0"),
    ],
)
def test_a_file_that_no_server_starts_with_is_refused(told: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config({**config_file("kimi_k3_text"), **told})


def test_a_bound_is_below_none() -> None:
    section = {**config_file("kimi_k3_text")["linear_attn_config"], "gate_lower_bound": 1.0}
    with pytest.raises(ConfigError, match="gate_lower_bound is 1"):
        model_config({**config_file("kimi_k3_text"), "linear_attn_config": section})


@pytest.mark.parametrize(("rank", "given", "sent"), [(0, 0, 2), (1, 2, 3)])
def test_a_stage_is_given_what_others_kept_and_sends_it_on(rank: int, given: int, sent: int) -> None:
    model = model_config({**config_file("kimi_k3_text"), "attn_res_block_size": 12, "num_hidden_layers": 32})
    comm = VirtualCommunicator(ParallelConfig(pp=2), rank)
    stage = Decoder(model, RuntimeConfig(), comm, META, range(16 * rank, 16 * rank + 16))
    for is_sent, count in ((False, given), (True, sent)):
        kept = stage.empty_state(5, is_sent).kept
        assert kept is not None and kept.rows.shape == (5, count, model.hidden_size)


def _by_graph_and_eagerly(comm: Communicator, parallel: ParallelConfig, capture: bool) -> list[Any]:
    """The logits of a prefill over both stages, and those that it then decodes with, of the last one."""
    told = {"prefill_tokens": 64, "states": StateRules(conv_dtype="float32")}
    graphs = {"prefill_graphs": (16, 64), "decode_graphs": (1, 4)} if capture else {}
    runtime, options = make_runtime(**told, **graphs), StartOptions(kv_tokens=512)
    runner = ModelRunner(make_hybrid("kimi_k3_text"), parallel, runtime, Cpu(), lambda: comm, options=options)
    runner.start()
    requests = runner.kv.requests.allocate(2)
    texts = [[7, 11, 13, 17, 19], [23, 29, 31]]
    batches = [
        make_extend_batch(texts, requests, runner.kv, [0, 0]),
        make_decode_batch([37, 41], requests, runner.kv, [5, 3]),
    ]
    found = [runner.forward(batch) if capture else runner.forward_eager(batch) for batch in batches]
    return [one.next_token_logits.numpy().copy() for one in found if isinstance(one, LogitsOutput)]


def test_stages_pass_on_what_is_kept_by_graphs_too(ranks: Ranks) -> None:
    stages = ParallelConfig(pp=2)
    captured, eager = (ranks.run(stages, _by_graph_and_eagerly, stages, on)[-1] for on in (True, False))
    assert len(captured) == len(eager) == 2
    for got, want in zip(captured, eager, strict=True):
        torch.testing.assert_close(torch.from_numpy(got), torch.from_numpy(want), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("tp", "copied"), [(4, 0), (8, 12 * 128)])
def test_a_rank_of_twelve_heads_keeps_copies_for_its_decode(tp: int, copied: int) -> None:
    """_merge_bfa_weights and _prepare_fused_decode of srt/models/kimi_k3.py."""
    model, comm = model_config(_WHOLE), VirtualCommunicator(ParallelConfig(tp=tp), 0)
    rank = Decoder(model, RuntimeConfig(), comm, META, [0])
    rank.load_dummy()
    (mixer,) = (one for one in rank.modules() if isinstance(one, KimiDelta))
    made = {name: tuple(one.shape) for name, one in mixer.named_buffers(recurse=False)}
    assert made.pop("padding") == (-(128 + 96 // tp) % 8, 7168)
    taps = {"taps": (4, 3 * copied), "no_bias": (3 * copied,), "norm_in_fp32": (128,)}
    assert made == (taps if copied else {})


def test_ups_without_a_height_are_as_they_are() -> None:
    x = torch.randn(3, 8)
    gate, up = x.chunk(2, dim=-1)
    opened = 4 * torch.tanh(gate / 4) * gate.sigmoid()
    torch.testing.assert_close(situ(x, 4.0, 0.0), opened * up)
    torch.testing.assert_close(situ(x, 4.0, 0.5), opened * 0.5 * torch.tanh(up / 0.5))


def test_of_residuals_alike_their_mean_is_one_of_them() -> None:
    row, kept = torch.randn(3, 8), torch.randn(3, 4, 8)
    kept[:, :2] = row[:, None]
    torch.testing.assert_close(snapshot_ops.mixed(kept, row, 2, torch.randn(8), 1e-5), row)
