"""The matrices of a rank's layers: those that transformers has, and split as SGLang splits them."""

import re
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from runtime.server.config import ModelConfig
from runtime.server.parallel import ParallelConfig
from runtime.server.quantized import Kind, Quantized
from runtime.server.sizes.linears import LinearSize, Spread, linears, quantized_sizes
from tests.runtime.configs import model_of
from tests.runtime.families import FAMILIES, config_json, make_reference, tensors

ALONE = Spread(1, 1)
_OF_A_LAYER = re.compile(r"(?:model|backbone)\.layers\.(\d+)\.(.*)\.weight")
# Kept in a model's own precision, or one expert of many.
_NO_LINEAR = re.compile(
    r"(mlp|block_sparse_moe|mixer)\.experts\.|(gate|router|shared_expert_gate|indexer\.weights_proj)$"
)
# Each rank has the low ranks, the indexer and a latent between experts whole.
_WHOLE = re.compile(r"(q_a_proj|kv_a_proj_with_mqa|indexer\.\w+|fc[12]_latent_proj)$")
_BY_COLUMNS = re.compile(r"(o_proj|out_proj|down_proj)$")
_MLP = re.compile(r"(?<!latent_)(gate_proj|up_proj|down_proj)$")


@cache
def _reference(name: str) -> tuple[ModelConfig, dict[tuple[int, str], tuple[int, ...]]]:
    with torch.device("meta"):
        reference = make_reference(name)
    shapes = {}
    for tensor, parameter in tensors(reference).items():
        found = _OF_A_LAYER.fullmatch(tensor)
        joined = name == "glm_moe_dsa" and found is not None and found[2].endswith("indexer.wk")
        if found and parameter.dim() == 2 and not joined and not _NO_LINEAR.search(found[2]):
            shapes[int(found[1]), found[2]] = tuple(parameter.shape)
    return model_of(config_json(reference)), shapes


def _by_modules(model: ModelConfig, parallel: ParallelConfig, spread: Spread) -> dict[Any, LinearSize]:
    return {(one.modules, one.layers): one for one in linears(model, parallel, spread)}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_rank_alone_multiplies_by_what_transformers_has(name: str) -> None:
    model, theirs = _reference(name)
    ours: dict[tuple[int, str], tuple[int, ...]] = {}
    for one in linears(model, ParallelConfig(), ALONE):
        for layer in one.layers:
            modules = [
                module if (layer, module) in theirs else module.replace("shared_expert.", "shared_experts.")
                for module in one.modules
            ]
            known = [theirs[layer, module] for module in modules]
            assert (sum(rows for rows, _ in known), {k for _, k in known}) == (one.n, {one.k})
            ours |= {(layer, module): theirs[layer, module] for module in modules}
    assert ours == theirs


@pytest.mark.parametrize("name", FAMILIES)
def test_ranks_share_rows_of_what_fans_out_and_columns_of_what_comes_together(name: str) -> None:
    model, _ = _reference(name)
    alone = _by_modules(model, ParallelConfig(), ALONE)
    halves = _by_modules(model, ParallelConfig(tp=2), Spread(2, 2))
    assert alone.keys() == halves.keys()
    for key, whole in alone.items():
        half, last = halves[key], whole.modules[-1]
        if _WHOLE.search(last):
            assert (half.k, half.n) == (whole.k, whole.n), last
        elif _BY_COLUMNS.search(last):
            assert (half.k, half.n) == (whole.k // 2, whole.n), last
        else:
            assert (half.k, half.n) == (whole.k, whole.n // 2), last


@pytest.mark.parametrize("name", FAMILIES)
def test_mlps_are_split_over_ranks_of_their_own(name: str) -> None:
    """Dense MLPs and shared experts are each split over ranks of their own, not over attention's."""
    model, _ = _reference(name)
    alone = _by_modules(model, ParallelConfig(), ALONE)
    for spread, changed in ((Spread(2, 1), "dense"), (Spread(1, 2), "shared")):
        others = _by_modules(model, ParallelConfig(), spread)
        for (modules, layers), one in alone.items():
            moves = bool(_MLP.search(modules[0])) and ("share" in modules[0]) == (changed == "shared")
            assert (others[modules, layers] != one) == moves, modules


# The classes of SGLang that split heads over all ranks, also under DP attention.
_OVER_ALL = ("llama", "mistral", "mixtral", "gemma3_text")


@pytest.mark.parametrize("name", FAMILIES)
def test_under_dp_attention_heads_are_shared_by_a_group_where_the_model_knows_of_it(name: str) -> None:
    model, _ = _reference(name)
    groups = ParallelConfig(tp=4, dp=2, enable_dp_attention=True)
    out = next(
        one for one in linears(model, groups, ALONE) if one.modules[0].endswith(("o_proj", "out_proj"))
    )
    wide = next(one for one in linears(model, ParallelConfig(), ALONE) if one.modules == out.modules)
    assert wide.k // out.k == (4 if name in _OVER_ALL else 2)


def test_no_head_of_keys_is_divided() -> None:
    """With more ranks than KV heads, each rank has one head, and several ranks have the same one."""
    model, _ = _reference("llama")
    (qkv,) = (one for one in linears(model, ParallelConfig(tp=4), ALONE) if "q_proj" in one.modules[0])
    assert qkv.n == (4 // 4 + 2 * 1) * 16


@pytest.mark.parametrize(("width", "fused"), [(64, True), (192, True), (96, False), (32, False)])
def test_a_kernel_activates_shared_experts_whose_rows_it_can_cut(width: int, fused: bool) -> None:
    """Then the kernel runs gate and up itself, and they are not listed: both must divide into 128 rows."""
    model, _ = _reference("deepseek_v3")
    assert model.moe is not None
    wide = replace(model, moe=replace(model.moe, shared_intermediate_size=width))
    found = [one.modules for one in linears(wide, ParallelConfig(), Spread(1, 1, fuses_shared=True))]
    assert (("mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj") not in found) is fused
    assert ("mlp.shared_experts.down_proj",) in found


def test_each_size_is_told_once_and_only_of_what_is_quantized() -> None:
    model = replace(_reference("qwen3")[0], quantized=Quantized(linear=Kind("fp8")))
    assert quantized_sizes(model, ParallelConfig(), ALONE) == tuple(
        dict.fromkeys((one.k, one.n, one.place) for one in linears(model, ParallelConfig(), ALONE))
    )
