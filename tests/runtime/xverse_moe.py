"""XVERSE of experts as a DeepSeek-MoE, under names of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from tests.runtime import deepseek_moe
from tests.runtime.small_llamas import XverseConfig
from tests.runtime.told import Randomize, Tensors, Told


class XverseMoeConfig(XverseConfig):
    """As SGLang's class reads it: the file that comes with its checkpoints is not known here."""

    model_type = "xverse_moe"
    num_experts: int | None = None
    num_shared_experts: int | None = None
    moe_top_k: int = 1


def sizes(told: Told) -> Told:
    return deepseek_moe.sizes(_as_deepseek(told))


def alter(model: Any, told: Told, randomize: Randomize) -> None:
    deepseek_moe.alter(model, _as_deepseek(told), randomize)


def tensors(held: Tensors, told: Told) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in deepseek_moe.tensors(held, _as_deepseek(told)):
        yield name.replace(".mlp.gate.", ".mlp.router."), tensor


def _as_deepseek(told: Told) -> Told:
    return {
        **{"num_key_value_heads": told["num_attention_heads"], **told},
        "n_routed_experts": told["num_experts"],
        "num_experts_per_tok": told["moe_top_k"],
        "n_shared_experts": told["num_shared_experts"],
        "moe_intermediate_size": told["intermediate_size"],
    }
