"""Of Ling 3 what transformers' class has no field for: low ranks of queries, and caps, as SGLang has them."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

from runtime.forward.comm import VirtualCommunicator
from runtime.server.parallel_config import ParallelConfig
from tests.runtime.families import make_reference, prompts, reference_logits, save
from tests.runtime.generation import Generation, make_runtime

_RANK, _STEPS = 24, 3
_ROUTED, _SHARED = [0, 0.3, 0, 0.5], [0.7, 0.2, 0.4, 0]
_PARTS = {".q_proj.0.": ".q_a_proj.", ".q_proj.1.": ".q_a_layernorm.", ".q_proj.2.": ".q_b_proj."}


def _narrow(model: Any) -> None:
    generator = torch.Generator().manual_seed(3)
    for layer in model.model.layers[1::2]:
        own = layer.self_attn
        parts = (nn.Linear(64, _RANK, bias=False), nn.Linear(_RANK, own.q_proj.out_features, bias=False))
        for part in parts:
            part.weight.data = torch.randn(part.weight.shape, generator=generator) * part.in_features**-0.5
        norm = type(own.kv_a_layernorm)(_RANK)
        norm.weight.data += 0.2 * torch.randn(_RANK, generator=generator)
        own.q_proj = nn.Sequential(parts[0], norm, parts[1])


def _gated(both: torch.Tensor, cap: float) -> torch.Tensor:
    gate, up = both.chunk(2, dim=-1)
    opened = F.silu(gate)
    return opened.clamp(max=cap) * up.clamp(-cap, cap) if cap else opened * up


def _by_experts(own: Any, cap: float, x: torch.Tensor, chosen: Any, shares: torch.Tensor) -> torch.Tensor:
    answer = torch.zeros_like(x)
    for place in range(chosen.shape[1]):
        for row, expert in enumerate(chosen[:, place].tolist()):
            inner = _gated(own.gate_up_proj[expert] @ x[row], cap)
            answer[row] += shares[row, place] * (own.down_proj[expert] @ inner)
    return answer


def _by_shared(own: Any, cap: float, x: torch.Tensor) -> torch.Tensor:
    both = torch.cat((own.gate_proj(x), own.up_proj(x)), dim=-1)
    answer: torch.Tensor = own.down_proj(_gated(both, cap))
    return answer


def _cap(model: Any) -> None:
    """A dense layer has none, whatever its list says."""
    for layer, routed, shared in zip(model.model.layers[1:], _ROUTED[1:], _SHARED[1:], strict=True):
        layer.mlp.experts.forward = partial(_by_experts, layer.mlp.experts, routed)
        layer.mlp.shared_experts.forward = partial(_by_shared, layer.mlp.shared_experts, shared)


def _check(model: Any, folder: Path, **told: Any) -> None:
    save(model, folder)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    for own, other in _PARTS.items():
        tensors = {name.replace(own, other): tensor for name, tensor in tensors.items()}
    save_file(tensors, file)
    (folder / "config.json").write_text(json.dumps({**model.saved_as, **told}))
    one, [text] = ParallelConfig(), prompts(11)
    rows = Generation(folder, one, make_runtime(), VirtualCommunicator(one)).run([text], _STEPS)
    want = reference_logits(model, text)[-_STEPS - 1 :]
    torch.testing.assert_close(torch.stack(rows[0]), want, atol=1e-4, rtol=0)


def test_queries_through_a_low_rank(tmp_path: Path) -> None:
    model = make_reference("bailing_hybrid_v3")
    _narrow(model)
    _check(model, tmp_path, q_lora_rank=_RANK)


def test_experts_are_capped_after_their_gates_open(tmp_path: Path) -> None:
    model = make_reference("bailing_hybrid_v3")
    before = reference_logits(model, prompts(11)[0])
    _cap(model)
    assert (reference_logits(model, prompts(11)[0]) - before).abs().max() > 0.01
    limits = {"expert_swiglu_limit_list": _ROUTED, "share_expert_swiglu_limit_list": _SHARED}
    _check(model, tmp_path, **limits)
