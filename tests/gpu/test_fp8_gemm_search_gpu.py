"""fp8_gemm under the shared search on a GPU, where a launch takes microseconds: as good as stock."""

import time
from collections.abc import Callable
from statistics import mean
from typing import Any

import pytest
import torch
from flashinfer.autotuner import AutoTuner, autotune

from runtime.autotune.record import record_asked
from runtime.autotune.tuner import SearchTuner
from runtime.layers.gemms import TUNED, capability, fp8_gemm
from tests.runtime.tuned_layer import installed

if not torch.cuda.is_available() or capability(torch.empty(0, device="cuda")) not in TUNED:
    pytest.skip("needs a GPU whose fp8_gemm is tuned", allow_module_level=True)

from benchmarks.tuning_search import KernelJudge

# Llama-3.1-8B's fused projections and its gate and up, k and n
SIZES = [(4096, 6144), (4096, 28672)]
MOST_ROWS = 4096


def _call(k: int, n: int) -> Callable[[], torch.Tensor]:
    generator = torch.Generator("cuda").manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device="cuda").to(torch.float8_e4m3fn)

    x, weight, one = random(MOST_ROWS, k), random(n, k), torch.ones(1, device="cuda")
    return lambda: fp8_gemm(x, weight, one, one, torch.bfloat16)


def _tuned(tuner: AutoTuner, call: Callable[[], torch.Tensor]) -> float:
    with installed(tuner):
        torch.cuda.synchronize()
        started = time.perf_counter()
        with autotune(True):
            call()
        torch.cuda.synchronize()
        return time.perf_counter() - started


def _winners(tuner: AutoTuner) -> dict[tuple[str, int], Any]:
    return {
        (key.custom_op, key.nearest_profile[0][-2]): tactic
        for key, (tactic, _) in tuner.profiling_cache.items()
    }


@pytest.mark.parametrize(("k", "n"), SIZES)
def test_winners_are_as_good_as_stocks_and_faster(k: int, n: int, capsys: pytest.CaptureFixture[str]) -> None:
    call = _call(k, n)
    with installed(AutoTuner()):
        call()  # its module is loaded
    stock, again, ours = AutoTuner(), AutoTuner(), SearchTuner()
    seconds = [_tuned(tuner, call) for tuner in (stock, ours, again)]
    found = [_winners(tuner) for tuner in (stock, ours, again)]
    assert found[0].keys() == found[1].keys() == found[2].keys()
    judge = KernelJudge(found, rounds=20)
    with installed(judge), autotune(True):
        call()
    regret = [[times[run] / times[0] - 1 for times in judge.times.values()] for run in (1, 2)]
    with capsys.disabled():
        print(
            f"\nfp8_gemm {k} x {n}, {len(found[0])} buckets: stock {seconds[0]:.2f} s and {seconds[2]:.2f} s,"
            f" ours {seconds[1]:.2f} s; ours {mean(regret[0]):+.2%} mean, {max(regret[0]):+.2%} worst;"
            f" stock again {mean(regret[1]):+.2%}, {max(regret[1]):+.2%}"
        )
    assert seconds[1] < seconds[0]
    assert mean(regret[0]) < max(0.01, 2 * abs(mean(regret[1])))
    assert max(regret[0]) < max(0.05, 2 * max(regret[1]))
    assert not [result for result in ours.results if result.tactic is None]
    with installed(ours), record_asked() as record:
        call()
    assert record.hits == len(record.asked) == 1
