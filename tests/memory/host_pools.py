"""Published checkpoints on servers with a cache of two tiers: what SGLang's classes keep for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from runtime.server.errors import NeverStarts
from runtime.server.host_pool import host_pool
from runtime.server.parallel import stage_layers
from runtime.server.pool_plan import FreeMemory, kv_dtype_of, plan_pool
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from tests.memory.checkpoints import DATA, published_config

RECORDED = DATA / "host_pools.json"
REST = (3 << 30) + 12345  # bytes that are left for the pool
TOLD = ("tokens", "page", "mapped", "held", "layout")
_DIRECT = "--hicache-mem-layout page_first_direct"
_RELEASES = ("0.5.12", "0.5.14", "0.5.20", "0.5.23")


@dataclass(frozen=True, slots=True)
class Case:
    release: str
    model: str
    server: str
    stage: int = 0

    @property
    def argv(self) -> list[str]:
        return ["--enable-hierarchical-cache", *self.server.split()]

    @property
    def key(self) -> str:
        return f"{self.release} {self.model} {self.server} {self.stage}"


def cases() -> Iterator[Case]:
    for model, server, stage in (
        ("meta-llama/Llama-3.1-8B-Instruct", "--page-size 64", 0),
        ("meta-llama/Llama-3.1-8B-Instruct", "--page-size 64 --hicache-mem-layout layer_first", 0),
        (
            "meta-llama/Llama-3.1-70B-Instruct",
            "--tp-size 8 --hicache-ratio 1.7 --hicache-io-backend direct",
            0,
        ),
        ("Qwen/Qwen3-30B-A3B", "--tp-size 2 --hicache-size 40 --hicache-mem-layout page_first", 0),
        ("Qwen/Qwen3-32B", "--tp-size 2 --pp-size 2 --page-size 16 --kv-cache-dtype fp8_e4m3", 1),
        ("Qwen/Qwen3-32B", "--hicache-ratio 0.4", 0),
        ("deepseek-ai/DeepSeek-R1", "--tp-size 8 --page-size 64 --hicache-mem-layout page_first", 0),
        (
            "deepseek-ai/DeepSeek-R1",
            "--tp-size 8 --dp-size 8 --enable-dp-attention --hicache-mem-layout page_head",
            0,
        ),
        ("deepseek-ai/DeepSeek-V3.2", "--tp-size 8 --kv-cache-dtype fp8_e4m3 --hicache-ratio 1.2", 0),
        ("zai-org/GLM-5.1-FP8", "--tp-size 8 --kv-cache-dtype bfloat16 --hicache-mem-layout layer_first", 0),
        ("Qwen/Qwen3-32B", f"--max-total-tokens 700 --page-size 64 {_DIRECT} --hicache-ratio 2", 0),
        ("moonshotai/Kimi-K2-Instruct", "--tp-size 16 --hicache-size 100 --kv-cache-dtype fp8_e4m3", 0),
    ):
        for release in _RELEASES:
            yield Case(release, model, server, stage)
    yield from _with_windows()


def _with_windows() -> Iterator[Case]:
    """0.5.12 keeps none."""
    for model, server, stage in (
        ("openai/gpt-oss-20b", "--tp-size 2 --page-size 64 --hicache-ratio 1.5", 0),
        ("openai/gpt-oss-120b", "--pp-size 2 --hicache-mem-layout layer_first --hicache-ratio 3", 1),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", f"--tp-size 8 --page-size 16 {_DIRECT}", 0),
        ("google/gemma-4-31B-it", "--tp-size 4 --swa-full-tokens-ratio 0.3", 0),
        ("openai/gpt-oss-20b", "--hicache-ratio 0.5 --kv-cache-dtype fp8_e4m3", 0),
    ):
        for release in ("0.5.13", "0.5.14", "0.5.20", "0.5.23"):
            yield Case(release, model, server, stage)


def deployed(case: Case) -> Deployment:
    config = published_config(case.model)
    with TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config))
        command = ("python", "-m", "sglang.launch_server", "--model-path", folder, *case.argv)
        return select_deployments(ServerFlags(gpu="h200", sglang_version=case.release), command, None)[0]


def place_of(case: Case, found: Deployment) -> tuple[list[int], str]:
    """Its layers' first and what follows them, and how their keys are kept."""
    layers = stage_layers(found.model.num_layers, found.parallel, case.stage)
    return [layers[0], layers[-1] + 1], kv_dtype_of(found.runtime)


def kept(case: Case, found: Deployment) -> dict[str, int | str] | str:
    """As `TOLD` names it; or why it never starts."""
    model, parallel = found.model, found.parallel
    runtime = replace(found.runtime, images_mib=0)  # all of REST is the pool's
    layers = stage_layers(model.num_layers, parallel, case.stage)
    major = found.server.gpu.major
    plan = plan_pool(FreeMemory(REST, REST), 1.0, model, parallel, runtime, layers, 0, major)
    assert runtime.host_cache is not None
    try:
        pool = host_pool(runtime.host_cache, plan, model, parallel, layers, runtime.release)
    except NeverStarts as error:
        return error.message
    held = sum(size for _, size in pool.buffers())
    told = (pool.tokens, pool.page, pool.bytes, held, runtime.host_cache.layout)
    return dict(zip(TOLD, told, strict=True))
