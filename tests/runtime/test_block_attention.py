"""MiniMax-M3: what of its files is read, what is named, and blocks of tokens over chunks of a long prompt."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from runtime.forward.batch import make_decode_batch, make_extend_batch
from runtime.forward.comm import VirtualCommunicator
from runtime.forward.kv_pool import IndexedPool, KVPool, KVRow, PoolShape, ReqToTokenPool, SlotAllocator
from runtime.models.decoder import Decoder
from runtime.server.config import RuntimeConfig
from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from runtime.server.parallel_config import ParallelConfig
from sgl_tune.deployment.models import find_model
from tests.memory.checkpoints import DATA
from tests.runtime.families import make_reference, prompts, reference_logits, save
from tests.runtime.generation import CPU, check_answers, make_runtime

LENGTH = 150
Told = dict[str, Any]


def _published() -> Told:
    told: Told = json.loads((DATA / "published_families.json").read_text())["MiniMaxAI/MiniMax-M3"]
    return told


def _file(sparse: Told | None = None, quantization: Told | None = None, **text: Any) -> Told:
    """As published, with other members of its text; None leaves one out."""
    file = _published()
    section = {**file["text_config"]["sparse_attention_config"], **(sparse or {})}
    section = {name: value for name, value in section.items() if value is not None}
    told = {**file["text_config"], "sparse_attention_config": section, **text}
    kept = {name: value for name, value in told.items() if value is not None}
    return {**file, "text_config": kept, **({"quantization_config": quantization} if quantization else {})}


def test_what_is_published_is_read() -> None:
    model = model_config(_published())
    assert (model.obstacles, model.uncomputed) == ((), ())
    assert model.attention_kinds == ("full",) * 3 + ("sparse",) * 57
    assert model.layer_kinds == ("dense",) * 3 + ("moe",) * 57
    blocks, attention = model.attention["sparse"].blocks, model.main_attention
    assert blocks is not None and (blocks.num_heads, blocks.head_dim, blocks.local_blocks) == (4, 128, 1)
    assert blocks.seen == 16 * 128 and attention.blocks is None
    assert attention.rope is not None and (attention.rope.dim, attention.rope.theta) == (64, 5e6)
    assert (model.swiglu, model.intermediate_size, model.max_position) == ((1.702, 7.0), 12288, 1 << 20)


_ANY_TEXT = ("mixtral", "minimax_m2", "minimax_m3_vl_text")


@pytest.mark.parametrize("name", _ANY_TEXT)
def test_what_its_text_calls_itself_is_not_asked(name: str) -> None:
    assert model_config(_file(model_type=name)) == model_config(_published())


def _half(layers: int = 60) -> list[int]:
    return [0] * (layers // 2) + [1] * (layers - layers // 2)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (_file(rotary_dim=None), "rotary_dim is 128, and of head_dim 128 partial_rotary_factor makes 64"),
        (_file(partial_rotary_factor=None), "rotary_dim is 64"),
        (_file(rope_theta=None), "rope_theta is missing"),
        (_file(hidden_act="silu"), "hidden_act is 'silu'"),
        (_file(swiglu_beta=0.0), "swiglu_beta is 0.0"),
        (_file(swiglu_alpha=None), "swiglu_alpha is missing"),
        (_file(use_gemma_norm=None), "use_gemma_norm is None: this runtime computes True"),
        (_file(qk_norm_type="per_layer"), "qk_norm_type is 'per_layer'"),
        (_file(scoring_func="softmax"), "scoring_func is 'softmax'"),
        (_file(use_routing_bias=1), "use_routing_bias is 1"),
        (_file(n_shared_experts=2), "n_shared_experts is 2"),
        (_file(use_qk_norm=False), "use_qk_norm is False"),
        (_file(attention_output_gate=True), "attention_output_gate is True"),
        (_file(tie_word_embeddings=True), "tie_word_embeddings is True"),
        (_file(shared_intermediate_size=1024), "shared_intermediate_size is 1024, intermediate_size 3072"),
        (_file(moe_layer_freq=None), "moe_layer_freq is missing"),
        (_file(mlp_layer_types=["sparse"] * 60), "mlp_layer_types are not those of moe_layer_freq"),
        (_file(layer_types=["full_attention"] * 60), "layer_types are not those of sparse_attention_freq"),
        (_file({"sparse_attention_freq": None}), "sparse_attention_freq is missing"),
        (_file({"sparse_disable_index_value": _half()}), "layer 3 has values in its indexer"),
        (_file({"sparse_disable_index_value": None}), "layer 3 has values in its indexer"),
        (_file({"sparse_num_index_heads": 8}), "sparse_num_index_heads is 8, num_key_value_heads 4"),
        (_file({"sparse_index_dim": 64}), "sparse_index_dim is 64, head_dim 128"),
        (_file({"sparse_local_block": 17}), "sparse_local_block is 17, more than the 16"),
        (_file({"sparse_topk_blocks": None}), "sparse_attention_config has no sparse_topk_blocks"),
        (_file({"sparse_init_block": None}), "sparse_attention_config has no sparse_init_block"),
        (_file({"sparse_init_block": 1}), "sparse_init_block is 1"),
        (_file({"sparse_score_type": "lse"}), "sparse_score_type is 'lse'"),
        (_file({"use_sparse_attention": False}), "use_sparse_attention is False"),
        (_file(quantization={"quant_method": "fp8"}), "quant_method is 'fp8': this runtime knows 'mxfp8'"),
        (
            _file(quantization={"quant_method": "mxfp8", "moe_quant_algo": "NVFP4"}),
            "moe_quant_algo is 'NVFP4'",
        ),
    ],
)
def test_what_is_not_computed_is_named(changed: Told, said: str) -> None:
    assert [why for why in model_config(changed).obstacles if said in why]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (_file(moe_layer_freq=[1] * 59), "moe_layer_freq is"),
        (_file(moe_layer_freq="11"), "moe_layer_freq is '11': a list of 0 and 1"),
        (_file({"sparse_attention_freq": [0.5] * 60}), "sparse_attention_freq is"),
        (_file({"sparse_block_size": 1 << 20}), "sparse_block_size is"),
        (_file({"sparse_topk_blocks": 0}), "sparse_topk_blocks is 0"),
        (_file({"sparse_local_block": -1}), "sparse_local_block is -1"),
        (_file(sparse_attention_config=3), "sparse_attention_config is 3"),
        (_file(num_key_value_heads=7), "64 heads cannot be divided among 7 KV heads"),
        (_file(swiglu_limit=0), "swiglu_limit is 0"),
        (_file(dense_intermediate_size="many"), "dense_intermediate_size is 'many'"),
    ],
)
def test_what_no_model_can_have_is_refused(changed: Told, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config(changed)


_MX = {"quant_method": "mxfp8", "activation_scheme": "dynamic"}


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["lm_head", "language_model.model.layers.7.block_sparse_moe.gate"], None),
        (["language_model.model.layers.7.self_attn"], None),
        (["language_model.model.layers.7.block_sparse_moe.shared_experts"], "releases differ in whether"),
        ([f"language_model.model.layers.7.self_attn.{one}_proj" for one in "qkv"], "here both are, or none"),
    ],
)
def test_lists_of_what_stays_plain(names: list[str], said: str | None) -> None:
    obstacles = model_config(_file(quantization={**_MX, "ignored_layers": names})).obstacles
    assert [why for why in obstacles if said is None or said not in why] == []
    assert bool(obstacles) is (said is not None)


def test_an_indexers_matrix_is_joined_where_a_kernel_multiplies_by_both_as_by_one() -> None:
    for quantization, joined in ((None, True), (_MX, True), ({"quant_method": "fp8"}, False)):
        told = model_config(_file(quantization=quantization, num_hidden_layers=4))
        model = replace(told, obstacles=())  # of what is not known in fp8
        comm = VirtualCommunicator(ParallelConfig(tp=8))
        runtime = RuntimeConfig(sm_major=10, moe_runner_backend="deep_gemm")
        decoder = Decoder(model, runtime, comm, torch.device("meta"), [3])
        before = sum(one.nbytes for one in decoder.parameters())
        decoder.load_dummy()
        assert sum(one.nbytes for one in decoder.parameters()) >= before
        rows = {name: held.shape[0] for name, held in decoder.named_parameters() if name.endswith("weight")}
        asked, index = rows["layers.0.mixer.qkv.weight"], rows.get("layers.0.mixer.index.weight")
        assert (asked, index) == ((10 * 128 + 256, None) if joined else (10 * 128, 256))


def _served(folder: Path) -> tuple[Decoder, KVPool]:
    model = find_model(str(folder), {}).checkpoint.model_config()
    layers = range(model.num_layers)
    decoder = Decoder(model, make_runtime(), VirtualCommunicator(ParallelConfig()), CPU, layers)
    decoder.load_hf(folder)
    shape = PoolShape(2 * LENGTH, 1, tuple(layers), torch.float32, CPU)
    cache = IndexedPool(shape, dict.fromkeys(layers, KVRow(2, 32, 32)), {1: 32}, torch.float32)
    return decoder, KVPool(ReqToTokenPool(2, LENGTH, CPU), SlotAllocator(2 * LENGTH, CPU), cache)


def test_chunks_and_single_tokens_are_as_the_whole_prompt(tmp_path: Path) -> None:
    sizes = {"index_block_size": 16, "index_topk_blocks": 3, "max_position_embeddings": 256}
    reference = make_reference("minimax_m3_vl", **sizes)
    decoder, pool = _served(save(reference, tmp_path))
    long, short = prompts(LENGTH, 70)
    want = [reference_logits(reference, text) for text in (long, short)]
    requests = pool.requests.allocate(2)
    ends = [(47, 3), (48, 16), (129, 47), (149, 69)]
    for start, end in zip([(0, 0), *ends], ends, strict=False):
        parts = [text[a:b] for text, a, b in zip((long, short), start, end, strict=True)]
        check_answers(decoder, pool, make_extend_batch(parts, requests, pool, start), want, end)
    last = make_decode_batch([long[-1], short[-1]], requests, pool, ends[-1])
    check_answers(decoder, pool, last, want, (150, 70))
