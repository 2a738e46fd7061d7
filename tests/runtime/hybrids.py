"""Small hybrids through the whole start, on whichever device: graphs beside eager forwards."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from runtime.devices.base import Device
from runtime.layers.recurrence import Rows
from runtime.server.layer_config import StateRules
from runtime.start.model_runner import ModelRunner
from tests.runtime.batches import make_decode_batch, make_extend_batch
from tests.runtime.configs import model_of
from tests.runtime.starts import eager_logits, make_runner, make_runtime, replayed_logits

_COMMON = {
    "vocab_size": 320, "hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
    "intermediate_size": 128, "moe_intermediate_size": 64, "num_experts_per_tok": 2,
    "max_position_embeddings": 256,
}  # fmt: skip
_HYBRIDS: dict[str, dict[str, Any]] = {
    "qwen3_next": {
        "num_hidden_layers": 4, "num_experts": 8, "shared_expert_intermediate_size": 64,
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 64,
        "linear_value_head_dim": 64,
    },
    "nemotron_h": {
        "hybrid_override_pattern": "ME*M-M", "n_routed_experts": 8, "moe_shared_expert_intermediate_size": 64,
        "mamba_num_heads": 8, "mamba_head_dim": 32, "ssm_state_size": 64, "n_groups": 2, "mamba_n_groups": 2,
    },
}  # fmt: skip
NAMES = tuple(_HYBRIDS)


def start_hybrid(name: str, device: Device, **changes: Any) -> ModelRunner:
    settings = {
        "prefill_tokens": 64,
        "prefill_graphs": (16, 64),
        "decode_graphs": (1, 4),
        "states": StateRules(conv_dtype="float32"),
    }
    runtime = make_runtime(**{**settings, **changes})
    model = model_of({"model_type": name, **_COMMON, **_HYBRIDS[name]})
    runner = make_runner(model, device, runtime=runtime, kv_tokens=1024)
    runner.start()
    return runner


def generated(runner: ModelRunner, lens: Sequence[int], steps: int, eagerly: bool) -> Iterator[torch.Tensor]:
    """The logits of a prefill, of a second one behind it, and of each step of a decode. A graph has no second
    prefill: what is behind a prefix runs eagerly."""
    texts = [[(7 * place + 3 * length) % 320 for place in range(length + 5 + steps)] for length in lens]
    requests, by_graph = range(1, len(lens) + 1), eager_logits if eagerly else replayed_logits
    first = [text[:length] for text, length in zip(texts, lens, strict=True)]
    yield by_graph(runner, make_extend_batch(first, requests, runner.kv)).float()
    second = [text[length : length + 5] for text, length in zip(texts, lens, strict=True)]
    yield eager_logits(runner, make_extend_batch(second, requests, runner.kv, lens)).float()
    for step in range(steps):
        before = [length + 5 + step for length in lens]
        new = [text[at] for text, at in zip(texts, before, strict=True)]
        yield by_graph(runner, make_decode_batch(new, requests, runner.kv, before)).float()


@dataclass(frozen=True, slots=True)
class RaggedRows:
    """Requests of these lengths, some behind earlier tokens, in slots of their own; padding after them."""

    lens: tuple[int, ...]
    earlier: tuple[int, ...]
    padding: int = 0

    @classmethod
    def random(cls, seed: int) -> RaggedRows:
        dice = random.Random(seed)
        count = dice.choice((1, 3, 5))
        lens = tuple(dice.choice((0, 1, 2, 5, 64, 70, 150)) for _ in range(count))
        return cls(lens, tuple(dice.choice((0, 3, 40)) for _ in range(count)), dice.choice((0, 4)))

    @property
    def total(self) -> int:
        return sum(self.lens)

    def on(self, device: torch.device, keeps: bool = True) -> Rows:
        ends = [sum(self.lens[:i]) for i in range(len(self.lens) + 1)]
        slots = [2 + 2 * i for i in range(len(self.lens))]
        seq_lens = [a + b for a, b in zip(self.lens, self.earlier, strict=True)]
        tensors = (torch.tensor(values, device=device) for values in (slots, seq_lens, ends))
        return Rows(*tensors, max((*self.lens, 1)), keeps)
