"""The shared search against FlashInfer's own, on one GPU or on several in lockstep: wall time and regret.

    PYTHONPATH=. python benchmarks/tuning_search.py
    PYTHONPATH=. torchrun --standalone --nproc-per-node 4 benchmarks/tuning_search.py

For each shape: FlashInfer tunes as SGLang's ranks do (everybody measures everything, times are averaged),
then the shared search tunes the same buckets. Where the two disagree, both winners are measured again in
turns on one GPU: how much slower ours is, is its regret. `--again` lets FlashInfer tune twice and judges its
second run in the same way: that is the noise floor.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import mean, median
from typing import Any

import torch
import torch.distributed as dist
from flashinfer.autotuner import AutoTuner, autotune, set_autotune_process_group

from benchmarks.record import write_record
from runtime.autotune.bench import Bench
from runtime.autotune.candidate import Candidate
from runtime.autotune.search import WHOLE_TURN, Effort, SearchPolicy
from runtime.autotune.team import Team
from runtime.autotune.tuner import SearchTuner
from runtime.moe.backends import make_backend
from runtime.moe.weights import ExpertWeights, TopK
from runtime.server.config import ModelConfig, MoEConfig, ParallelConfig, RuntimeConfig
from runtime.server.parallel import rank_layout

# Whole turns: FlashInfer's own 3 + 10 launches show every tactic another selection of the 16 routings.
JUDGE = Effort(warmup=WHOLE_TURN, repeat=2 * WHOLE_TURN, delay_us=5000)
JUDGE_ROUNDS = 5


@dataclass(frozen=True)
class Shape:
    hidden: int
    intermediate: int
    experts: int
    top_k: int
    ep: int
    tokens: int
    tune_max: int = 8192

    def model(self) -> ModelConfig:
        return ModelConfig(
            model_type="qwen3_moe",
            hidden_size=self.hidden,
            num_layers=1,
            intermediate_size=self.intermediate,
            vocab_size=1,
            max_position=self.tokens,
            moe=MoEConfig(self.experts, self.top_k, self.intermediate),
        )


SHAPES = {
    "glm-5.1-moe-ep8": Shape(6144, 2048, 256, 8, ep=8, tokens=16384),
    "qwen3-30b-a3b-tp1": Shape(2048, 768, 128, 8, ep=1, tokens=8192),
}


class Layer:
    """One MoE layer's experts on this GPU, and a batch for them."""

    def __init__(self, shape: Shape) -> None:
        local, generator = shape.experts // shape.ep, torch.Generator("cuda").manual_seed(0)
        runtime = RuntimeConfig(moe_runner_backend="flashinfer_cutlass", prefill_tokens=shape.tune_max)
        layout = rank_layout(ParallelConfig(tp=shape.ep, ep=shape.ep), 0)
        self.backend = make_backend("flashinfer_cutlass", shape.model(), runtime, layout)

        def random(*sizes: int) -> torch.Tensor:
            return torch.randn(*sizes, generator=generator, device="cuda", dtype=torch.bfloat16) * 0.05

        w13 = random(local, 2 * shape.intermediate, shape.hidden)
        w2 = random(local, shape.hidden, shape.intermediate)
        self.weights = ExpertWeights(w13, w2, num_experts=shape.experts)
        self.x = random(shape.tokens, shape.hidden)
        self.logits = torch.randn(shape.tokens, shape.experts, generator=generator, device="cuda")
        scores, ids = self.logits.softmax(-1).topk(shape.top_k)
        self.scores, self.ids = scores, ids.int()

    def forward(self, rows: int | None = None) -> torch.Tensor:
        topk = TopK(self.ids[:rows], self.scores[:rows], self.logits[:rows])
        return self.backend.forward(self.x[:rows], topk, self.weights)

    def milliseconds(self, rows: int | None = None) -> float:
        times = []
        for _ in range(20):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            self.forward(rows)
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end))
        return median(times[5:])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=[*SHAPES, "all"], default="all")
    parser.add_argument("--again", action="store_true", help="measure FlashInfer's own noise floor as well")
    parser.add_argument("--out")
    options = parser.parse_args()
    team = join()
    names = list(SHAPES) if options.shape == "all" else [options.shape]
    rows = {name: compare(SHAPES[name], team, options.again) for name in names}
    if team.rank == 0:
        record = {"workers": team.size, "policy": asdict(SearchPolicy()), "shapes": rows}
        path = write_record(f"tuning_search_x{team.size}", record, options.out)
        show(rows, team.size)
        print(path)
    if dist.is_initialized():
        dist.destroy_process_group()


def join() -> Team:
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("gloo")
    return Team.of_world()


def compare(shape: Shape, team: Team, again: bool) -> dict[str, Any]:
    layer = Layer(shape)
    AutoTuner._instance = None
    load_seconds = timed(layer.forward)
    untuned = layer.milliseconds()
    touch_seconds = timed(lambda: launch_every_tactic(layer))
    row: dict[str, Any] = {
        "module_load_seconds": load_seconds,
        "first_launches_seconds": touch_seconds,
        "untuned_ms": untuned,
    }
    stock, row["stock"] = tune(layer, team, AutoTuner(), lockstep=True)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    ours, row["shared"] = tune(layer, team, SearchTuner(team), lockstep=False)
    row["peak_above_mib"] = (torch.cuda.max_memory_allocated() - before) / 2**20
    row["digests_equal"] = len(set(team.gather(digest(ours)))) == 1
    results = ours.results  # type: ignore[attr-defined]
    row["measured_tactics"] = sum(result.tactics for result in results)
    row["finalists"] = mean(result.finalists for result in results)
    row["buckets"] = [
        {"op": r.op, "bucket": r.bucket, "tactic": r.tactic, "ms": r.best_ms, "default_ms": r.default_ms}
        for r in results
    ]
    row["failed"] = {r.file_key: dict(r.failed) for r in results if r.failed}
    row["regret"] = judged(layer, team, stock, ours)
    if again:
        second, row["stock_again"] = tune(layer, team, AutoTuner(), lockstep=True)
        row["noise_floor"] = judged(layer, team, stock, second)
    return row


def tune(layer: Layer, team: Team, tuner: AutoTuner, lockstep: bool) -> tuple[AutoTuner, dict[str, Any]]:
    AutoTuner._instance = tuner
    set_autotune_process_group(dist.group.WORLD if lockstep and team.size > 1 else None)
    team.gather(None)
    try:
        with autotune(True):
            seconds = timed(layer.forward)
    finally:
        set_autotune_process_group(None)
    entries = len(tuner.profiling_cache)
    return tuner, {"seconds": seconds, "entries": entries, "tuned_ms": layer.milliseconds()}


def timed(work: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


class Toucher(SearchTuner):
    """Launches every tactic once, in its smallest bucket, so that neither side pays for loading code."""

    def _missing_profiles(self, ask: Any) -> list[Any]:
        profile = self._generate_optimization_profiles(ask.config, ask.inputs)[0]
        bench = Bench(self, ask, profile)
        candidates = bench.candidates()
        bench.prepare(candidates)
        for candidate in candidates:
            bench.measure(candidate, Effort(0, 1, 0))
        return []


def launch_every_tactic(layer: Layer) -> None:
    AutoTuner._instance = Toucher()
    with autotune(True):
        layer.forward(1)
    AutoTuner._instance = None


def winners(tuner: AutoTuner) -> dict[str, Any]:
    return {key.file_key: value[0] for key, value in tuner.profiling_cache.items()}


def digest(tuner: AutoTuner) -> str:
    return hashlib.sha256(json.dumps(sorted(winners(tuner).items())).encode()).hexdigest()


class Judge(SearchTuner):
    """Measures two winners of each bucket in turns, with more repeats than any tuning."""

    def __init__(self, reference: dict[str, Any], other: dict[str, Any]) -> None:
        super().__init__()
        self.reference, self.other = reference, other
        self.ratios: list[float] = []

    def _missing_profiles(self, ask: Any) -> list[Any]:
        for profile in self._generate_optimization_profiles(ask.config, ask.inputs):
            key = self._key(ask, 0, profile).file_key
            pair = Candidate(0, self.reference[key]), Candidate(0, self.other[key])
            self.ratios.append(0.0 if pair[0] == pair[1] else self._slower(ask, profile, pair))
        return []

    def _slower(self, ask: Any, profile: Any, pair: tuple[Candidate, Candidate]) -> float:
        bench = Bench(self, ask, profile)
        bench.prepare(pair)
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(JUDGE_ROUNDS):
            for candidate, seen in zip(pair, times, strict=True):
                seen.append(bench.measure(candidate, JUDGE))
        return median(times[1]) / median(times[0]) - 1


def judged(layer: Layer, team: Team, reference: AutoTuner, other: AutoTuner) -> dict[str, Any]:
    """On the first worker's GPU while the others wait."""
    judge = Judge(winners(reference), winners(other))
    if team.rank == 0:
        AutoTuner._instance = judge
        with autotune(True):
            layer.forward()
    AutoTuner._instance = None
    team.gather(None)
    ratios = judge.ratios or [0.0]
    return {
        "mean": mean(ratios),
        "worst": max(ratios),
        "best": min(ratios),
        "same": sum(ratio == 0 for ratio in ratios),
        "of": len(ratios),
    }


def show(rows: dict[str, dict[str, Any]], workers: int) -> None:
    print(
        f"\n{workers} GPU(s)          stock s  shared s  saved   untuned/stock/shared ms  regret mean/worst"
    )
    for name, row in rows.items():
        stock, shared = row["stock"], row["shared"]
        saved = 1 - shared["seconds"] / stock["seconds"]
        times = f"{row['untuned_ms']:.3f}/{stock['tuned_ms']:.3f}/{shared['tuned_ms']:.3f}"
        print(
            f"{name:18} {stock['seconds']:8.2f} {shared['seconds']:9.2f} {saved:6.1%} {times:>25}"
            f"  {as_regret(row['regret'])}"
        )
        if "noise_floor" in row:
            again = row["stock_again"]["seconds"]
            print(f"{'  stock again':18} {again:8.2f} {'':42}  {as_regret(row['noise_floor'])}")
        print(
            f"  module loaded in {row['module_load_seconds']:.2f} s, every tactic launched once in "
            f"{row['first_launches_seconds']:.2f} s; {row['measured_tactics']} tactics, "
            f"{row['finalists']:.1f} finalists a bucket, {len(row['failed'])} buckets with failures; "
            f"peak +{row['peak_above_mib']:.0f} MiB; one table on all: {row['digests_equal']}"
        )


def as_regret(regret: dict[str, Any]) -> str:
    return f"{regret['mean']:+.2%} / {regret['worst']:+.2%}   {regret['same']}/{regret['of']}"


if __name__ == "__main__":
    main()
