"""GLM-5.3 Flash: what of its files is read, what is named, its pools, and chunks of a long prompt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from runtime.forward.batch import make_decode_batch, make_extend_batch
from runtime.forward.comm import VirtualCommunicator
from runtime.forward.kv_pool import LatentPool, make_cache
from runtime.models.decoder import Decoder
from runtime.server.config import RuntimeConfig
from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from runtime.server.parallel_config import ParallelConfig
from runtime.server.pool_plan import PoolPlan, page_size
from runtime.server.sizing import kept_layers, kv_bytes_per_token
from sgl_tune.deployment.models import find_model
from tests.memory.checkpoints import DATA
from tests.runtime.families import make_reference, prompts, reference_logits, save
from tests.runtime.generation import CPU, check_answers, make_pool, make_runtime

LENGTH = 60
META = torch.device("meta")
Told = dict[str, Any]


def _published() -> Told:
    told: Told = json.loads((DATA / "published_families.json").read_text())[
        "a/glm-5.3-flash-as-its-classes-have-it"
    ]
    return told


def _file(**text: Any) -> Told:
    """With other members of its text; None leaves one out."""
    told = {**_published()["text_config"], **text}
    return {**_published(), "text_config": {name: one for name, one in told.items() if one is not None}}


def test_what_its_classes_have_is_read() -> None:
    model = model_config(_published())
    assert (model.obstacles, model.uncomputed) == ((), ())
    assert model.layer_kinds == ("dense",) * 3 + ("moe",) * 42
    assert [layer for layer, kind in enumerate(model.attention_kinds) if kind == "full"] == [*range(3, 45, 4)]
    assert model.mla is not None and model.mla.indexer is not None and model.streams is not None
    assert (model.mla.indexer.pool, model.mla.norm_eps, model.streams.weighs_last) == (16, 1e-5, False)


def _section(**changes: Any) -> Told:
    deltas = [layer for layer in range(45) if layer % 4 != 3]
    usual = {"num_heads": 64, "head_dim": 128, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0}
    return {"kda_layers": deltas, "full_attn_layers": [*range(3, 45, 4)], **usual, **changes}


def test_a_section_of_its_delta_layers_is_as_good() -> None:
    told = model_config(_file(linear_attn_config=_section(), linear_lower_bound=None, layer_types=None))
    assert told == model_config(_published())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *(({name: None}, f"{name} is missing") for name in ("swiglu_limit", "index_topk", "index_kpool")),
        ({"linear_lower_bound": None}, "linear_lower_bound is missing"),
        ({"gate_lower_bound": -4.0}, "gate_lower_bound is -4.0, linear_lower_bound -5.0"),
        *(
            ({name: None}, f"{name} is None: this runtime computes True")
            for name in ("mhc", "index_kpool_compress")
        ),
        ({"index_kpool": 1}, "index_kpool is 1"),
        ({"index_kpool_always_select_tail": False}, "index_kpool_always_select_tail is False"),
        ({"indexer_types": ["full", "shared"] * 23}, "layers share an indexer"),
        ({"index_topk_freq": 4}, "layers share an indexer"),
        ({"first_k_dense_replace": 1}, "mlp_layer_types are not those of first_k_dense_replace"),
        ({"mlp_layer_types": None, "first_k_dense_replace": 0}, "mlp_layer_types are not those of"),
        ({"scoring_func": "softmax"}, "scoring_func is 'softmax'"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings is True"),
        ({"num_key_value_heads": 8}, "num_key_value_heads is 8"),
        ({"num_local_experts": 8}, "num_local_experts is 8"),
        ({"layer_types": ["linear_attention"] * 45}, "no layer has attention"),
        ({"layer_types": ["indexed_attention"] * 45}, "no layer has a state"),
        ({"linear_attn_config": _section(gate_lower_bound=None)}, "has no gate_lower_bound"),
        ({"linear_attn_config": _section(kda_layers=[1])}, "kda_layers are not those of layer_types"),
    ],
)
def test_what_is_not_computed_is_named(text: Told, said: str) -> None:
    assert [why for why in model_config(_file(**text)).obstacles if said in why]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ({"qk_rope_head_dim": 64}, "qk_rope_head_dim is 64: here nothing is turned"),
        ({"index_topk": 2040}, "index_topk 2040 are not whole pools of index_kpool 16"),
        ({"index_kpool": 1 << 20}, "index_kpool is"),
        ({"linear_lower_bound": 0.0}, "a number below 0"),
        ({"swiglu_limit": 0}, "swiglu_limit is 0"),
        ({"hc_mult": 0}, "hc_mult is 0"),
    ],
)
def test_what_no_model_can_have_is_refused(text: Told, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config(_file(**text))


@pytest.mark.parametrize("name", ["swiglu_limit", "projection_intermediate_size"])
def test_its_towers_sizes_are_told(name: str) -> None:
    tower = {one: value for one, value in _published()["vision_config"].items() if one != name}
    with pytest.raises(ConfigError, match=f"vision_config: {name} is missing"):
        model_config({**_published(), "vision_config": tower})


_POINTER = 8  # of each layer's buffer, which SGLang keeps on the GPU


@pytest.mark.parametrize("case", json.loads((DATA / "sglang_pooled.json").read_text()), ids=str)
def test_its_pool_holds_what_sglangs_own_holds(case: Told) -> None:
    """tests/oracle/pooled.py: DSATokenToKVPool, and DefaultPoolConfigurator's bytes of a token."""
    model, parallel = model_config(_file(index_kpool=case["pool"])), ParallelConfig(tp=8)
    major, layers = 9 if case["gpu"] == "H200" else 10, range(*case["stage"])
    by_gpu = "fp8_e4m3" if major == 10 else "bfloat16"
    kv, packed = by_gpu if case["kv"] == "auto" else case["kv"], major < 10
    page = page_size(model, RuntimeConfig())
    plan = PoolPlan(case["tokens"], page, kv, case["requests"], 1, packed)
    cache = make_cache(plan, model, parallel, layers, META)
    assert isinstance(cache, LatentPool)
    held = sum(one.nbytes for one in cache.held()) + _POINTER * len(kept_layers(model, layers))
    assert [int(kv_bytes_per_token(model, parallel, kv, layers, packed=packed)), held, page] == case["answer"]


@pytest.mark.parametrize(("pool", "top_k"), [(4, 16), (5, 5), (16, 32)])
def test_chunks_and_single_tokens_are_as_the_whole_prompt(pool: int, top_k: int, tmp_path: Path) -> None:
    reference = make_reference("glm5_next", index_kpool=pool, index_topk=top_k)
    comm = VirtualCommunicator(ParallelConfig())
    model = find_model(str(save(reference, tmp_path)), {}).checkpoint.model_config()
    decoder = Decoder(model, make_runtime(), comm, CPU, range(model.num_layers))
    decoder.load_hf(tmp_path)
    kv = make_pool(model, comm, range(model.num_layers), torch.float32, CPU)
    long, short = prompts(LENGTH, 33)
    want = [reference_logits(reference, text) for text in (long, short)]
    requests = kv.requests.allocate(2)
    ends = [(17, 3), (18, 16), (47, 17), (59, 32)]
    for start, end in zip([(0, 0), *ends], ends, strict=False):
        parts = [text[a:b] for text, a, b in zip((long, short), start, end, strict=True)]
        check_answers(decoder, kv, make_extend_batch(parts, requests, kv, start), want, end)
    last = make_decode_batch([long[-1], short[-1]], requests, kv, ends[-1])
    check_answers(decoder, kv, last, want, (LENGTH, 33))
