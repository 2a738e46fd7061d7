"""Published checkpoints on servers with copies of experts, or with adapters: what SGLang's classes hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from runtime.forward.comm import VirtualCommunicator
from runtime.models.decoder import Decoder
from runtime.server.adapter_pool import pool_of
from runtime.start.weights_beside import idle_weights
from sgl_tune.deployment.deployment import Deployment
from tests.memory.checkpoints import DATA
from tests.memory.published_servers import deployed_at
from tests.memory.rank_bytes import META, bytes_of

RECORDED = DATA / "asked_beside.json"
_EPLB = "--enable-eplb"
_COPIES = "--ep-num-redundant-experts"
_ADAPTERS = "--enable-lora --max-loras-per-batch 4 --max-lora-rank 32 --lora-target-modules"


@dataclass(frozen=True, slots=True)
class Case:
    release: str
    model: str
    place: str  # tp, or tp/ep/dp
    server: str

    @property
    def modules(self) -> list[str]:
        return self.server.partition(_ADAPTERS)[2].split()

    @property
    def is_of_tables(self) -> bool:
        return _EPLB in self.server

    @property
    def key(self) -> str:
        return f"{self.release} {self.model} {self.place} {self.server}"


def cases() -> Iterator[Case]:
    for model, place, copies in (
        ("Qwen/Qwen3-30B-A3B", "4/4", 16),
        ("Qwen/Qwen3-235B-A22B", "8/8/8", 32),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "4/4", 64),
        ("deepseek-ai/DeepSeek-R1", "16/16/16", 32),
        ("deepseek-ai/DeepSeek-V3.2", "8/8/8", 16),
        ("zai-org/GLM-5.1-FP8", "8/8/8", 24),
        ("MiniMaxAI/MiniMax-M2", "8/8", 8),
        ("moonshotai/Kimi-K2-Instruct", "16/16/16", 16),
        ("MiniMaxAI/MiniMax-M3", "8/8", 8),
    ):
        for release in ("0.5.17", "0.5.23"):
            yield Case(release, model, place, f"{_COPIES} {copies}")
    for release, told in (
        ("0.5.12", "--moe-a2a-backend deepep --deepep-mode normal"),
        ("0.5.16", ""),
        ("0.5.17", "--eplb-rebalance-num-iterations 64"),
        ("0.5.23", ""),
        ("0.5.23", "--moe-a2a-backend deepep --deepep-mode low_latency"),
    ):
        yield Case(release, "Qwen/Qwen3-30B-A3B", "4/4", f"{_COPIES} 8 {_EPLB} {told}".strip())
    for model, place, modules in (
        ("meta-llama/Llama-3.1-8B-Instruct", "1", "all"),
        ("meta-llama/Llama-3.1-70B-Instruct", "4", "q_proj v_proj o_proj"),
        ("Qwen/Qwen3-32B", "2", "qkv_proj gate_up_proj down_proj lm_head"),
        ("Qwen/Qwen3-30B-A3B", "4/2", "q_proj gate_proj up_proj down_proj"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "2", "qkv_proj o_proj gate_up_proj down_proj embed_tokens"),
    ):
        for release in ("0.5.12", "0.5.17", "0.5.23"):
            yield Case(release, model, place, f"{_ADAPTERS} {modules}")


def deployed(case: Case) -> Deployment | None:
    return deployed_at(case.model, case.place, case.release, case.server.split())


def held(case: Case, found: Deployment) -> int:
    """The last rank's weights, or its pool of adapters."""
    rank, model = found.parallel.tp - 1, found.model
    if case.modules:
        pool = pool_of(found.runtime.adapters, model, found.parallel, rank)
        assert pool is not None
        return sum(2 * prod(shape) for _, shape in pool.buffers())
    if case.is_of_tables:
        placement, moe = found.runtime.placement, model.moe
        assert placement is not None and moe is not None
        sizes = placement.tables(model.num_layers, moe, found.parallel.moe_ep)
        return sum(count * (8 if dtype == "int64" else 4) for _, dtype, count in sizes)
    comm = VirtualCommunicator(found.parallel, rank)
    made = Decoder(model, found.runtime, comm, META, range(model.num_layers))
    return bytes_of(made) + sum(one.nbytes for one in idle_weights(made))
