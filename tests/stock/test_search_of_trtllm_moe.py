"""FlashInfer's trtllm MoE ops under the shared search: its tuner and runners on meta tensors, kernels spin.

A real layer of a deployment asks, as `warm` makes it; on a GPU these ops need Blackwell.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from flashinfer.autotuner import AutoTuner

from runtime.autotune.cpu_clock import CpuClock, CpuSearchTuner
from runtime.autotune.installed import VERSION, WAYS, file_key, tuning_mode
from runtime.flashinfer.versions import other_keys_of
from runtime.moe import flashinfer_trtllm
from runtime.start.rehearsal import Rehearsal
from sgl_tune.keys.plan import make_plan
from sgl_tune.warm.job import make_job
from tests.runtime.tuned_layer import installed
from tests.stock import kernel_stubs
from tests.stock.calls import deployment_of, planned_experts

if other_keys_of(VERSION):
    pytest.skip("the core plans the newest FlashInfer's keys", allow_module_level=True)

TACTICS = [(8, 0), (8, 1), (16, 2), (32, 3)]
# Much longer than a call by Python takes on a busy machine.
TIMES_MS = {(-1, -1): 1.0, (8, 0): 1.2, (8, 1): 0.25, (16, 2): 1.2, (32, 3): 1.6}
DEPLOYMENTS = {
    "bf16": {"model_path": "Qwen3-30B-A3B", "tp": 4},
    "fp8 blocks": {"model_path": "DeepSeek-V3", "tp": 8, "ep": 8},
    "routed fp8": {"model_path": "DeepSeek-V3", "tp": 8, "moe_runner_backend": "flashinfer_trtllm_routed"},
    "nvfp4": {"model_path": "GLM-5.1", "tp": 8, "quantization": "modelopt_fp4"},
}


class Module(kernel_stubs.Module):
    """FlashInfer writes this name into keys."""

    def __init__(self) -> None:
        self.launches = 0

    def trtllm_get_valid_moe_configs(self, *_: Any) -> list[list[int]]:
        return [list(tactic) for tactic in TACTICS]

    def __getattr__(self, name: str) -> Callable[..., list[torch.Tensor]]:
        def kernel(*arguments: Any) -> list[torch.Tensor]:
            given = [tuple(one) for one in arguments if isinstance(one, (list, tuple))]
            asked = [one for one in given if one in TIMES_MS]
            if len(asked) == 1:
                self.launches += 1
                end = time.perf_counter() + TIMES_MS[asked[0]] / 1e3
                while time.perf_counter() < end:
                    pass
            return [torch.empty(0)] * 4

        return kernel


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Module:
    kernels = Module()
    kernel_stubs.install_trtllm_module(monkeypatch, kernels)
    monkeypatch.setattr(flashinfer_trtllm, "trtllm_moe", flashinfer_trtllm.trtllm_moe.run)
    # Meta tensors have no contents to draw.
    made = AutoTuner._create_tensor_like

    def empty(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    monkeypatch.setattr(AutoTuner, "_create_tensor_like", lambda self, *like: made(self, *like[:2], empty))
    monkeypatch.setattr(CpuClock, "_get_l2_cache_size_in_bytes", lambda *_: 1)
    return kernels


@pytest.mark.filterwarnings("ignore:Calling a trtllm-gen block-scale MoE op:DeprecationWarning")
@pytest.mark.parametrize("flags", DEPLOYMENTS.values(), ids=DEPLOYMENTS)
def test_a_layers_ops_are_searched_in_every_bucket(flags: dict[str, Any], kernels: Module) -> None:
    target = {"sglang_version": "0.5.23", "flashinfer_version": VERSION}
    sizes = {"chunked_prefill_size": 64, "max_running_requests": 16}
    deployment = deployment_of(**{"moe_runner_backend": "flashinfer_trtllm", **target, **sizes, **flags})
    (cache, *_) = make_job(make_plan(deployment), Path(), "cuda", (0,)).caches
    rehearsal = Rehearsal(cache.model, cache.parallel, cache.runtime, kernel_stubs.Meta())
    found = {}
    for tuner in (CpuClock(), CpuSearchTuner()):
        before = kernels.launches
        with installed(tuner), tuning_mode(cache.skip_ops):
            rehearsal.forward_all(cache.tuning_rows)
        assert kernels.launches > before
        found[type(tuner)] = _table(tuner)
    ours, stock = found[CpuSearchTuner], found[CpuClock]
    assert {key: policy for key, (_, policy) in ours.items()} == planned_experts(deployment)
    assert ours == stock and {tactic for tactic, _ in ours.values()} == {(8, 1)}


def _table(tuner: AutoTuner) -> dict[str, tuple[Any, Any]]:
    policies = tuner._profiling_cache_policies if WAYS.keeps_policies else {}
    return {
        file_key(key): (tuple(tactic), policies.get((None, key)))
        for key, (tactic, _) in tuner.profiling_cache.items()
    }
