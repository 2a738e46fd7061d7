"""The matrices of a rank's layers: those that transformers has, and split as SGLang splits them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from runtime.server.config import ModelConfig
from runtime.server.decoders.known import model_config
from runtime.server.linears import LinearSize, Spread, linears, quantized_sizes
from runtime.server.parallel_config import ParallelConfig
from tests.runtime.families import FAMILIES, config_json, make_reference, tensors

ALONE = Spread(1, 1)
_OF_A_LAYER = re.compile(
    r"(?:model\.(?:language_model\.|decoder\.)?layers|transformer\.(?:h|blocks|encoder\.layers)|backbone\.layers|gpt_neox\.layers)\.(\d+)\.(.*)\.weight"
)
# Kept in a model's own precision, as SGLang makes no quantized layer of them, or one expert of many.
_NO_LINEAR = re.compile(
    r"(mlp|block_sparse_moe|mixer|zaya_block)\.experts\.|(gate|gate\.wg|router(\.(proj|classifier|layer))?|shared_expert_gate|self_attn\.g_proj"
    r"|indexer\.(weights_proj|wk)|compressor\.(indexer\.)?(kv|gate)_proj|scorer\.weights_proj|self_attn\.o_a_proj"
    r"|\battention\.b_proj|mlp\.routed_expert_(down|up)_proj|\w+_res_proj"
    r"|hyper_connection\.\w+|ngram_embedding|(\w+\.)?\w+norm\.gate_(up|down)_projection"
    r"|self_attn\.v_(router|experts\.\d+))$"
)
_LINEAR = {
    "gemma3n_text": ("per_layer_input_gate", "altup.modality_router"),
    "gemma4_text": ("per_layer_input_gate",),
    "hy_v4": ("self_attn.linear_gate",),
    "gigachat3_5": ("self_attn.gate_proj",),
    "minicpm_sala": ("self_attn.o_gate", "self_attn.z_proj"),
    **dict.fromkeys(("laguna", "kimi_k3_text", "dots3_note_text", "jet_nemotron"), ("self_attn.g_proj",)),
}
# Stored as one by transformers.
_STORED = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj"), "qkv_proj"),
    **dict.fromkeys(("gate_proj", "up_proj"), "gate_up_proj"),
}

_BY_TRANSFORMERS = {
    "shared_mlp.gate_up_proj": "shared_mlp.input_linear",
    **{f"self_attn.f_{one}_proj": f"self_attn.forget_gate.f_{one}_proj" for one in "ab"},
}
_OWN = {
    "chatglm": {"mlp.gate_up_proj": "mlp.dense_h_to_4h"},
    "phi3small": {"mlp.gate_up_proj": "mlp.up_proj"},
}
_SHARED = re.compile(r"share_expert\.|mlp\.shared_(mlp|expert)\.")


@cache
def _reference(name: str) -> tuple[ModelConfig, dict[tuple[int, str], tuple[int, ...]]]:
    with torch.device("meta"):
        reference = make_reference(name)
    shapes, linear = {}, _LINEAR.get(name, ())
    for name, parameter in tensors(reference).items():
        found = _OF_A_LAYER.fullmatch(name)
        gate = "attention.g_proj", getattr(reference.config, "num_attention_heads", None)
        if found and (found[2], *parameter.shape[:1]) == gate:
            continue  # of latents; that of delta layers is as wide as they are
        if found and parameter.dim() == 2 and (found[2] in linear or not _NO_LINEAR.search(found[2])):
            shapes[int(found[1]), found[2]] = tuple(parameter.shape)
    told = getattr(reference, "saved_as", None) or reference.config.to_dict()
    model = model_config(json.loads(json.dumps(told)))
    if model.names.by_columns:
        shapes = {one: shape[::-1] for one, shape in shapes.items()}
    return model, _by_halves(shapes) if model.shortcut else shapes


def _by_halves(shapes: dict[tuple[int, str], tuple[int, ...]]) -> dict[tuple[int, str], tuple[int, ...]]:
    """A layer of theirs has each of these twice: `self_attn.1.o_proj` is of the second of two of ours."""
    return {(2 * layer + int(name.split(".")[1]), name): shape for (layer, name), shape in shapes.items()}


def _stored(module: str, family: str) -> str:
    stem, _, last = module.rpartition(".")
    name = f"{stem}.{_STORED.get(last, last)}"
    return _OWN.get(family, _BY_TRANSFORMERS).get(name, name)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_rank_alone_multiplies_by_what_transformers_has(name: str) -> None:
    model, known_there = _reference(name)
    theirs = dict(known_there)
    ours: dict[tuple[int, str], tuple[int, ...]] = {}
    for one in linears(model, ParallelConfig(), ALONE):
        for layer in one.layers:
            modules = [
                module if (layer, module) in theirs else _SHARED.sub("mlp.shared_experts.", module)
                for module in one.modules
            ]
            attention = model.attention.get(model.attention_kinds[layer])
            source = model.key_layer(layer)
            if source != layer and modules[0].endswith("q_proj"):  # multiplied by, and unread
                own = {(layer, one): theirs.get((source, one)) for one in modules[1:]}
                theirs |= {one: shape for one, shape in own.items() if shape is not None}
            if attention and attention.keys_are_values and modules[0].endswith("q_proj"):
                theirs[layer, modules[2]] = theirs[layer, modules[1]]  # one of a checkpoint, kept twice
            known = [theirs[layer, module] for module in modules if (layer, module) in theirs]
            if len(known) == len(modules):
                spare = -known[-1][0] % 8 if attention and attention.gates_first and len(known) == 3 else 0
                assert (sum(rows for rows, _ in known) + spare, {k for _, k in known}) == (one.n, {one.k})
                ours |= {(layer, module): theirs[layer, module] for module in modules}
            else:
                ours[layer, _stored(modules[0], name)] = (one.n, one.k)
    assert ours == theirs


# What each rank has whole: low ranks, the indexer, a latent between experts.
_WHOLE = re.compile(
    r"([qfg]_a_proj|self_attn\.kv_proj|kv_a_proj_with_mqa|indexer\.\w+|fc[12]_latent_proj|val_proj[12]|router\.(down_proj|router_mlp\.\d)|per_layer_\w+|altup\.\w+|ple\.\w+|experts\.0\.w[12]|generator\.w1)$"
)
_BY_COLUMNS = re.compile(
    r"(o_proj|c_proj|o_b_proj|out_proj|down_proj|output_linear|(?<!generator\.)w2|dense|wo|laurel\.linear_right|\bfc2|fc_out"
    r"|dense_4h_to_h|x_proj)$"
)

_GATHERED = {"gemma3n_text": ("model.per_layer_model_projection",)}  # which another family has whole


def _by_modules(model: ModelConfig, parallel: ParallelConfig, spread: Spread) -> dict[Any, LinearSize]:
    return {(one.modules, one.layers): one for one in linears(model, parallel, spread)}


@pytest.mark.parametrize("name", FAMILIES)
def test_ranks_share_rows_of_what_fans_out_and_columns_of_what_comes_together(name: str) -> None:
    model, _ = _reference(name)
    alone = _by_modules(model, ParallelConfig(), ALONE)
    halves = _by_modules(model, ParallelConfig(tp=2), Spread(2, 2))
    assert alone.keys() == halves.keys()
    for key, whole in alone.items():
        half, last = halves[key], whole.modules[-1]
        is_whole = _WHOLE.search(last) and last not in _GATHERED.get(name, ())
        kinds = {model.attention_kinds[layer] for layer in whole.layers} & model.attention.keys()
        if last.endswith("g_proj") and any(model.attention[kind].gates_first for kind in kinds):
            mla = model.layer_mla(whole.layers[0])
            kept = mla.q_lora_rank + mla.cache_dim
            gates = (whole.n - kept) // 2
            assert (half.k, half.n) == (whole.k, kept + gates + -gates % 8), last
        elif is_whole or (last.endswith("v_proj") and model.main_attention.query_rank):
            assert (half.k, half.n) == (whole.k, whole.n), last
        elif _BY_COLUMNS.search(last):
            assert (half.k, half.n) == (whole.k // 2, whole.n), last
        elif last.endswith("c_attn") and model.main_attention.num_kv_heads == 1:  # which every rank has
            assert (half.k, 2 * half.n) == (whole.k, whole.n + 2 * model.main_attention.head_dim), last
        else:
            assert (half.k, half.n) == (whole.k, whole.n // 2), last


_NO_MLP = re.compile(r"self_attn|zaya_block\.router|altup_")
_NAMED_AS_DENSE = ("grok",)  # shared experts
_IN_LAYERS = ("fc1", "fc2")  # without a module of their own
_OF_MLPS = (
    *("gate_proj", "up_proj", "down_proj", "c_fc", "c_proj", "output_linear", "feed_forward", "mlp.fc"),
    *("mlp.w2", "mlp.dense"),
)


@pytest.mark.parametrize("name", FAMILIES)
def test_mlps_are_split_over_ranks_of_their_own(name: str) -> None:
    """Not over attention's: those of dense layers and those beside experts each over theirs."""
    model, _ = _reference(name)
    alone = _by_modules(model, ParallelConfig(), ALONE)
    for spread, changed in ((Spread(2, 1), "dense"), (Spread(1, 2), "shared")):
        others = _by_modules(model, ParallelConfig(), spread)
        for (modules, layers), one in alone.items():
            shared = "share" in modules[0] or name in _NAMED_AS_DENSE
            attends = modules[0].startswith("attn.") or _NO_MLP.search(modules[0]) is not None
            is_of_mlp = modules[0] in _IN_LAYERS or any(part in modules[0] for part in _OF_MLPS)
            is_mlp = not attends and is_of_mlp
            moves = is_mlp and shared == (changed == "shared")
            assert (others[modules, layers] != one) == moves, modules


def test_no_head_of_keys_is_divided() -> None:
    """Where ranks are more than heads of keys, each rank has one, and as many have the same."""
    model, _ = _reference("llama")
    (qkv,) = (one for one in linears(model, ParallelConfig(tp=4), ALONE) if "q_proj" in one.modules[0])
    assert qkv.n == (4 // 4 + 2 * 1) * 16


_DP = ParallelConfig(tp=4, dp=2, enable_dp_attention=True)
_OVER_ALL = {
    *(
        "llama",
        "mistral",
        "mixtral",
        "mixtral_quant",
        "qwen2",
        "glm4",
        "ernie4_5",
        "ernie4_5_moe",
        "ernie4_5_vl_moe_text",
    ),
    *("qwen2_vl_text", "qwen2_5_vl_text", "glm4v_text", "glm_ocr_text"),
    *("exaone4", "olmo2", "olmoe", "phi3", "gemma", "gemma2", "gemma3_text", "granite", "granitemoe"),
    *("granitemoehybrid", "arcee", "hunyuan_v1_dense", "hunyuan_v1_moe", "ministral3", "mimo"),
    *("orion", "baichuan", "xverse", "xverse_moe", "TeleFLM", "qwen"),
    *("lfm2", "lfm2_moe", "cohere", "cohere2", "cohere2_moe", "internlm2", "hy_v3", "gemma4_text", "afmoe"),
    *("granitemoeshared", "granitemoe_swa", "olmo3", "starcoder2", "internlm3", "grok", "nemotron-nas"),
    *("stablelm", "olmo", "iquestcoder", "apertus", "exaone", "deepseek"),
    *("minicpm", "minicpm_sala", "dbrx", "diffusion_gemma_text", "persimmon", "phi", "solar"),
    *("zaya", "minicpm3", "granite_swa", "chatglm", "gpt2", "opt", "gpt_bigcode", "gptj"),
    *("nanbeige", "gemma3n_text", "mllama_text_model", "moss_vl_text", "iquestloopcoder"),
    *("seed_oss", "smollm3", "helium", "ernie4_5_of_transformers", "phi3small"),
    *("gpt_neox", "jais2", "cwm", "ministral", "dots1", "solar_open"),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_under_dp_attention_heads_are_shared_by_a_group_where_the_model_knows_of_it(name: str) -> None:
    model, _ = _reference(name)
    attention = next((model.attention[one] for one in model.attention_kinds if one in model.attention), None)
    attended = f"{model.names.attention}{model.half_name(0)}.{model.names.attention_out}"
    if attention is None:
        attended = f"{model.names.recurrent}.out_proj"
    out = next(one for one in linears(model, _DP, ALONE) if one.modules[0].endswith(attended))
    wide = next(one for one in linears(model, ParallelConfig(), ALONE) if one.modules == out.modules)
    assert attention is None or attention.num_heads % 4 == 0
    assert wide.k // out.k == (4 if name in _OVER_ALL else 2)


@pytest.mark.parametrize(("width", "fused"), [(64, True), (192, True), (96, False), (32, False)])
def test_a_kernel_activates_shared_experts_whose_rows_it_can_cut(width: int, fused: bool) -> None:
    """Gate and up are then its own, and no matrix among these: by 128 rows of both."""
    model, _ = _reference("deepseek_v3")
    assert model.moe is not None
    wide = replace(model, moe=replace(model.moe, shared_intermediate_size=width))
    found = [one.modules for one in linears(wide, ParallelConfig(), Spread(1, 1, fuses_shared=True))]
    assert (("mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj") not in found) is fused
    assert ("mlp.shared_experts.down_proj",) in found


def test_loose_experts_are_whole_on_their_rank() -> None:
    model, _ = _reference("qwen3_moe")
    assert model.moe is not None
    hidden, inner = model.hidden_size, model.moe.intermediate_size
    loose = [one for one in linears(model, ParallelConfig(tp=2), Spread(2, 2, loose_experts=True))]
    assert [(one.k, one.n) for one in loose if "experts.0" in one.modules[0]] == [
        (hidden, inner),
        (inner, hidden),
    ]


def test_each_size_is_told_once_and_only_of_what_is_quantized() -> None:
    model, _ = _reference("qwen3")
    assert quantized_sizes(model, ParallelConfig(), ALONE) == tuple(
        dict.fromkeys((one.k, one.n, one.place) for one in linears(model, ParallelConfig(), ALONE))
    )


@pytest.mark.parametrize(("method", "joined"), [(None, True), ("mxfp8", True), ("fp8", False)])
def test_what_minimaxs_indexer_asks_with_is_joined_to_what_its_heads_do(method: str, joined: bool) -> None:
    """Where a kernel multiplies by both as by one; each rank has a key of the indexer whole."""
    model = replace(
        model_config(config_json(make_reference("minimax_m3_vl"))), checkpoint_quantization=method
    )
    for tp, heads, keys in ((1, 4, 2), (2, 2, 1), (4, 1, 1)):
        found = {
            one.modules: (one.k, one.n)
            for one in linears(model, ParallelConfig(tp=tp), Spread(tp, tp))
            if one.layers == (1,) and "self_attn" in one.modules[0] and "o_proj" not in one.modules[0]
        }
        asked, index = (heads + 2 * keys) * 32, (keys + 1) * 32
        assert [n for _, n in found.values()] == ([asked + index] if joined else [asked, index])
        assert {k for k, _ in found.values()} == {64}


@pytest.mark.parametrize(
    ("name", "plain"),
    [("stablelm", "self_attn."), ("olmo", "self_attn."), ("falcon_h1", "mamba."), ("kimi_linear", "none")],
)
def test_what_a_class_gives_no_method_is_quantized_by_nobody(name: str, plain: str) -> None:
    model = _reference(name)[0]
    every = [*linears(model, ParallelConfig(), ALONE)]
    kept = {(one.k, one.n, one.place) for one in every if not one.modules[0].startswith(plain)}
    assert {*quantized_sizes(model, ParallelConfig(), ALONE)} == kept
