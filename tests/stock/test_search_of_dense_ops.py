"""FlashInfer's GEMMs beside the experts, under the shared search: its tuner and runners, kernels that spin.

How long each tactic takes in each bucket is known, so that what a search must find is known too.
"""

import time
from collections.abc import Callable, Iterator
from math import log2
from typing import Any

import pytest
import torch
from flashinfer.autotuner import AutoTuner, autotune
from flashinfer.gemm import gemm_base

from runtime.autotune.cpu_clock import CpuClock, CpuSearchTuner
from runtime.autotune.installed import WAYS, file_key
from tests.runtime.tuned_layer import installed
from tests.stock.kernel_stubs import Module, install_fp4_module, install_gemm_module

FP8, UINT8 = torch.float8_e4m3fn, torch.uint8
ROWS, TACTICS = 64, 5
BEST_MS, OTHER_MS, DEFAULT_MS = 0.25, 1.2, 1.0  # much longer than a call by Python on a busy machine


def best_by_shape(rows: int) -> int:
    """As cuBLAS numbers its algorithms: what is best in one bucket is another kernel in the next."""
    return int(log2(rows)) * 2 % TACTICS


def best_by_size(rows: int) -> int:
    """A tactic is one kernel: neighbouring buckets have the same best one, which changes between pilots."""
    return 1 if rows < 16 else 3


class Spinning(Module):
    """The kernels of a compiled module, by name as FlashInfer calls them."""

    def __init__(self, best: Callable[[int], int]) -> None:
        self.best, self.launches = best, 0

    def _run(self, rows: int, tactic: int) -> None:
        self.launches += 1
        ms = DEFAULT_MS if tactic < 0 else BEST_MS if tactic == self.best(rows) else OTHER_MS
        end = time.perf_counter() + ms / 1e3
        while time.perf_counter() < end:
            pass

    def bmm_fp8_get_algos(self, *_: Any) -> int:
        return TACTICS

    def bmm_fp8_run_with_algo(self, a: torch.Tensor, *rest: Any) -> None:
        self._run(a.shape[1], rest[-1])

    def bmm_fp8(self, a: torch.Tensor, *_: Any) -> None:
        self._run(a.shape[1], -1)

    def fp4_gemm_tactic_num(self) -> int:
        return TACTICS

    def fp4_gemm(self, a: torch.Tensor, *rest: Any) -> None:
        self._run(a.shape[0], rest[-1])

    def trtllm_gemm_tactics(self, *_: Any) -> list[int]:
        return list(range(TACTICS))

    def trtllm_gemm(self, _input: Any, _output: Any, _workspace: Any, a: torch.Tensor, *rest: Any) -> None:
        self._run(a.shape[0], rest[-1])


def _fp8(monkeypatch: pytest.MonkeyPatch, kernels: Spinning) -> Callable[[], object]:
    install_gemm_module(monkeypatch, kernels)
    scale = torch.ones(1)
    a, b = torch.zeros(1, ROWS, 64).to(FP8), torch.zeros(1, 64, 32).to(FP8)
    out, workspace = torch.zeros(1, ROWS, 32, dtype=torch.bfloat16), torch.zeros(64, dtype=UINT8)
    return lambda: gemm_base.fp8_gemm_sm100(a, b, scale, scale, out, workspace, ["cublas"])


def _fp4(backend: str) -> Callable[[pytest.MonkeyPatch, Spinning], Callable[[], object]]:
    def call(monkeypatch: pytest.MonkeyPatch, kernels: Spinning) -> Callable[[], object]:
        install_fp4_module(monkeypatch, kernels)
        # Inputs are copied until they no longer fit into the last cache: of these sizes, a few are enough.
        monkeypatch.setattr(CpuClock, "_get_l2_cache_size_in_bytes", lambda *_: 1 << 16)
        monkeypatch.setattr(gemm_base, "_get_cache_buf", lambda *_: torch.zeros(64, dtype=UINT8))
        k, n = 128, 128
        a, b = torch.zeros(ROWS, k // 2, dtype=UINT8), torch.zeros(n, k // 2, dtype=UINT8)
        a_scale = torch.zeros(128, k // 16, dtype=UINT8)
        b_scale, alpha = torch.zeros(n, k // 16, dtype=UINT8), torch.ones(1)
        return lambda: gemm_base.mm_fp4(
            a, b.T, a_scale, b_scale.T, alpha, torch.bfloat16, backend=backend, skip_check=True
        )

    return call


OPS = {
    "fp8_gemm by cuBLAS": ("fp8_gemm", _fp8, best_by_shape),
    "fp4_gemm by CUTLASS": ("fp4_gemm", _fp4("cutlass"), best_by_size),
    "fp4_gemm by trtllm": ("fp4_gemm", _fp4("trtllm"), best_by_size),
}


@pytest.fixture(params=OPS.values(), ids=OPS)
def dense(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, ...]]:
    op, prepared, best = request.param
    kernels = Spinning(best)
    yield op, prepared(monkeypatch, kernels), kernels, best


def _tuned(tuner: AutoTuner, call: Callable[[], object]) -> dict[str, Any]:
    """By key: rows, tactic and the policy it was measured under."""
    with installed(tuner), autotune(True):
        call()
    found = {}
    for key, (tactic, _) in tuner.profiling_cache.items():
        policy = tuner._profiling_cache_policies[None, key] if WAYS.keeps_policies else None
        rows = key.nearest_profile[0][-2]
        found[file_key(key)] = (rows, tactic, policy)
    return found


def test_the_search_finds_every_buckets_best_under_stocks_keys(dense: tuple[Any, ...]) -> None:
    op, call, _, best = dense
    stock = _tuned(CpuClock(), call)
    tuner = CpuSearchTuner()
    ours = _tuned(tuner, call)
    assert {key: (rows, policy) for key, (rows, _, policy) in ours.items()} == {
        key: (rows, policy) for key, (rows, _, policy) in stock.items()
    }
    tactics = {rows: tactic for rows, tactic, _ in ours.values()}
    assert tactics == {rows: best(rows) for rows, _, _ in stock.values()}
    assert len(ours) == 7 and all(key.startswith(f"('{op}', ") for key in ours)
    for result in tuner.results:
        assert result.tactic == best(result.bucket) and result.runner_up is None
        assert result.default_ms > 1.5 * result.best_ms
