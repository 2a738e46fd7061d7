"""The shared search against FlashInfer's own, on one GPU or on several: wall time, and how good winners are.

    PYTHONPATH=. python benchmarks/tuning_search.py --runs shared,stock,shared,shared,stock,shared,shared
    PYTHONPATH=. torchrun --standalone --nproc-per-node 4 benchmarks/tuning_search.py --shape glm-5.1-moe-ep8

Each run tunes the same layer from nothing, in the order given. Then all their winners are measured again in
turns: in the layer's forward at every bucket, on even and on skewed routings that no search has seen, and in
FlashInfer's own profiling loop. Its regret is how much slower a run's winners are than the first stock run's;
that of the other stock runs is the noise floor. Measured apart, right after its search, a run would be judged
by how hot it left the GPU.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any

import torch
import torch.distributed as dist
from flashinfer.autotuner import AutoTuner, autotune, set_autotune_process_group

from benchmarks.record import write_record
from runtime.autotune.bench import Bench
from runtime.autotune.candidate import Candidate
from runtime.autotune.layer import LayerRace, LayerTrial
from runtime.autotune.progress import Progress
from runtime.autotune.search import WHOLE_TURN, SearchPolicy
from runtime.autotune.team import Team
from runtime.autotune.tuner import SearchTuner
from runtime.moe.backends import make_backend
from runtime.moe.layer_trial import OPS
from runtime.moe.weights import ExpertWeights, TopK
from runtime.server.config import Kernels, ModelConfig, RuntimeConfig, Vocabulary
from runtime.server.layer_config import MoEConfig
from runtime.server.parallel import ParallelConfig, rank_layout
from tests.runtime.teams import team_of_world

JUDGE_SEED = 77  # not the search's
KERNEL_ROUNDS = 3
LAYER_ROUNDS = 20
LAYER_ROUNDS_SHOWN = 40  # of each batch that is shown
LAYER_TURN_MS = 2.0
SHOWN = (1, 64, 1024)  # and the largest

Winners = dict[tuple[str, int], Any]  # (op, bucket) -> tactic


@dataclass(frozen=True)
class Shape:
    hidden: int
    intermediate: int
    experts: int
    top_k: int
    ep: int = 1
    tp: int = 1
    tokens: int = 8192
    tune_max: int = 8192

    def model(self) -> ModelConfig:
        return ModelConfig(
            model_type="qwen3_moe",
            hidden_size=self.hidden,
            intermediate_size=self.intermediate,
            vocabulary=Vocabulary(1),
            max_position=self.tokens,
            moe=MoEConfig(self.experts, self.top_k, self.intermediate),
        )


SHAPES = {
    "glm-5.1-moe-ep8": Shape(6144, 2048, 256, 8, ep=8),
    "qwen3-30b-a3b-tp1": Shape(2048, 768, 128, 8),
    "qwen3-235b-ep4": Shape(4096, 1536, 128, 8, ep=4),
    "qwen3-next-ep2": Shape(2048, 512, 512, 10, ep=2),
    "mixtral-8x7b-tp2": Shape(4096, 14336, 8, 2, tp=2),
    "minimax-m2-ep4": Shape(3072, 1536, 256, 8, ep=4),
    "kimi-k2-ep8": Shape(7168, 2048, 384, 8, ep=8),
    "glm-4.5-air-tp2": Shape(4096, 1408, 128, 8, tp=2),
}


class Layer:
    """One MoE layer's experts on this GPU, and a batch for them."""

    def __init__(self, shape: Shape) -> None:
        local, generator = shape.experts // shape.ep, torch.Generator("cuda").manual_seed(0)
        inner = shape.intermediate // shape.tp
        runtime = RuntimeConfig(kernels=Kernels(moe="flashinfer_cutlass"), prefill_tokens=shape.tune_max)
        layout = rank_layout(ParallelConfig(tp=shape.ep * shape.tp, ep=shape.ep), 0)
        self.backend = make_backend(shape.model(), runtime, layout)

        def random(*sizes: int) -> torch.Tensor:
            empty = torch.empty(*sizes, device="cuda", dtype=torch.bfloat16)
            return empty.normal_(0, 0.05, generator=generator)

        w13 = random(local, 2 * inner, shape.hidden)
        w2 = random(local, shape.hidden, inner)
        self.weights = ExpertWeights(w13, w2, num_experts=shape.experts)
        self.x = random(shape.tokens, shape.hidden)
        self.logits = torch.randn(shape.tokens, shape.experts, generator=generator, device="cuda")
        scores, ids = self.logits.softmax(-1).topk(shape.top_k)
        self.scores, self.ids = scores, ids.int()

    def forward(self, rows: int | None = None) -> torch.Tensor:
        topk = TopK(self.ids[:rows], self.scores[:rows], self.logits[:rows])
        return self.backend.forward(self.x[:rows], topk, self.weights)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=[*SHAPES, "all"], nargs="+", default=["all"])
    parser.add_argument("--runs", default="shared,stock", help="in this order")
    parser.add_argument("--out")
    options = parser.parse_args()
    team = join()
    names = list(SHAPES) if "all" in options.shape else options.shape
    runs = options.runs.split(",")
    rows: dict[str, Any] = {}
    for name in names:
        rows[name] = compare(SHAPES[name], team, runs)
        if team.rank == 0:
            record = {"workers": team.size, "policy": asdict(SearchPolicy()), "shapes": rows}
            path = write_record(f"tuning_search_x{team.size}", record, options.out)
            show(name, rows[name])
            print(path, flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


def join() -> Team:
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("gloo")
    return team_of_world()


def compare(shape: Shape, team: Team, runs: list[str]) -> dict[str, Any]:
    layer = Layer(shape)
    AutoTuner._instance = None
    load_seconds = timed(layer.forward)
    first = FirstLaunches()
    touch_seconds = timed(lambda: tuned_by(first, layer, 1))
    found: list[Winners] = []
    told: list[dict[str, Any]] = []
    for kind in runs:
        steps = Steps()
        tuner = SearchTuner(team, watch=steps) if kind == "shared" else AutoTuner()
        told.append({"search": kind, **tune(layer, team, tuner, lockstep=kind == "stock")})
        if kind == "shared":
            told[-1]["seconds_of_steps"] = team.gather(steps.seconds)
        found.append(winners(tuner))
    equal = len(set(team.gather("".join(map(digest, found))))) == 1 if team.size > 1 else True
    if team.rank == 0:
        judge(layer, first, found, told, runs.index("stock"))
    team.gather(None)
    return {
        "module_load_seconds": load_seconds,
        "first_launches_seconds": touch_seconds,
        "digests_equal": equal,
        "runs": told,
    }


class Steps:
    """What each step of each bucket took on one worker, with what it waited for before."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def __call__(self, told: Progress) -> None:
        now = time.perf_counter()
        self.seconds[f"{told.stage} {told.op.split('::')[-1]} {told.bucket}"] = now - self._last
        self._last = now


def tune(layer: Layer, team: Team, tuner: AutoTuner, lockstep: bool) -> dict[str, Any]:
    set_autotune_process_group(dist.group.WORLD if lockstep and team.size > 1 else None)
    team.gather(None)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    try:
        seconds = timed(lambda: tuned_by(tuner, layer))
    finally:
        set_autotune_process_group(None)
    row: dict[str, Any] = {"seconds": seconds, "entries": len(tuner.profiling_cache)}
    row["peak_above_mib"] = (torch.cuda.max_memory_allocated() - before) / 2**20
    if isinstance(tuner, SearchTuner):
        row["launches"] = sum(result.launches for result in tuner.results)
        row["finalists"] = mean(result.finalists for result in tuner.results)
        row["failed"] = {r.file_key: dict(r.failed) for r in tuner.results if r.failed}
    return row


def tuned_by(tuner: AutoTuner, layer: Layer, rows: int | None = None) -> None:
    with installed(tuner), autotune(True):
        layer.forward(rows)


@contextmanager
def installed(tuner: AutoTuner) -> Iterator[None]:
    AutoTuner._instance = tuner
    try:
        yield
    finally:
        AutoTuner._instance = None


def timed(work: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


class FirstLaunches(SearchTuner):
    """Launches every tactic once, so that no side pays for loading code, and keeps the layer's trial."""

    trial: LayerTrial

    @contextmanager
    def of_layer(self, trial: LayerTrial) -> Iterator[None]:
        self.trial = trial
        yield

    def _missing_profiles(self, ask: Any) -> list[Any]:
        profile = self._generate_optimization_profiles(ask.config, ask.inputs)[0]
        bench = Bench(self, ask, profile)
        candidates = bench.candidates()
        bench.prepare(candidates)
        bench.clock(candidates, 1)
        return []


def winners(tuner: AutoTuner) -> Winners:
    """Of any tuner: the rows are the first size of a profile."""
    return {
        (key.custom_op, key.nearest_profile[0][0]): value[0] for key, value in tuner.profiling_cache.items()
    }


def digest(found: Winners) -> str:
    return hashlib.sha256(json.dumps(sorted(map(str, found.items()))).encode()).hexdigest()


class KernelJudge(SearchTuner):
    """All winners of each bucket in turns, over whole turns of FlashInfer's synthetic routings."""

    def __init__(self, found: list[Winners], rounds: int = KERNEL_ROUNDS) -> None:
        super().__init__()
        self.found, self.rounds = found, rounds
        self.times: dict[tuple[str, int], list[float]] = {}

    def _missing_profiles(self, ask: Any) -> list[Any]:
        for profile in self._generate_optimization_profiles(ask.config, ask.inputs):
            where = ask.op, ask.bucket(profile)
            self.times[where] = self._times(ask, profile, [found[where] for found in self.found])
        return []

    def _times(self, ask: Any, profile: Any, tactics: list[Any]) -> list[float]:
        different = [Candidate(0, tactic) for tactic in dict.fromkeys(tactics)]
        if len(different) == 1:
            return [1.0] * len(tactics)
        bench = Bench(self, ask, profile)
        bench.prepare(different)
        seen = [bench.clock(different, WHOLE_TURN) for _ in range(self.rounds)]
        means = dict(zip((one.tactic for one in different), map(mean, zip(*seen, strict=True)), strict=True))
        return [means[tactic] for tactic in tactics]


def judge(
    layer: Layer, first: FirstLaunches, found: list[Winners], told: list[dict[str, Any]], stock: int
) -> None:
    kernels = KernelJudge(found)
    tuned_by(kernels, layer)
    buckets = sorted({rows for _, rows in found[0]})
    layers = {}
    for rows in buckets:
        shown = rows in (*SHOWN, buckets[-1])
        rounds = LAYER_ROUNDS_SHOWN if shown else LAYER_ROUNDS
        layers[rows] = layer_times(first.trial, rows, found, rounds)
    for run, row in enumerate(told):
        row["kernels"] = _regret([times[run] / times[stock] - 1 for times in kernels.times.values()])
        even = [times[0][run] / times[0][stock] - 1 for times in layers.values()]
        both = [sum(t[run] for t in times) / sum(t[stock] for t in times) - 1 for times in layers.values()]
        row["forward"] = _regret(even)
        row["forward_with_skewed"] = _regret(both)
        row["forward_ms"] = {rows: [times[0][run], times[1][run]] for rows, times in layers.items()}
        row["tactics"] = {rows: [found[run][op, rows] for op in OPS] for rows in buckets}


def layer_times(trial: LayerTrial, rows: int, found: list[Winners], rounds: int) -> list[list[float]]:
    """[routing][run]: milliseconds of a forward."""
    pairs = [tuple(Candidate(0, one[op, rows]) for op in OPS) for one in found]
    different = list(dict.fromkeys(pairs))
    race = LayerRace(trial, rows, layer_ms=1.0 if rows > 64 else 0.0, seed=JUDGE_SEED)
    guess = max(race(different[:1], 2)[0], race(different[:1], 2)[0])
    seen: tuple[list[list[float]], list[list[float]]] = ([], [])
    for played in range(rounds):
        order = different if played % 4 < 2 else different[::-1]
        times = dict(zip(order, race(order, max(1, round(LAYER_TURN_MS / guess))), strict=True))
        seen[played % 2].append([times[pair] for pair in different])
    means = [list(map(mean, zip(*one, strict=True))) for one in seen]
    return [[row[different.index(pair)] for pair in pairs] for row in means]


def _regret(ratios: list[float]) -> dict[str, float]:
    return {"mean": mean(ratios), "worst": max(ratios), "best": min(ratios)}


def show(name: str, row: dict[str, Any]) -> None:
    stock = mean(run["seconds"] for run in row["runs"] if run["search"] == "stock")
    print(
        f"\n{name}: module {row['module_load_seconds']:.2f} s, first launches "
        f"{row['first_launches_seconds']:.2f} s, one table: {row['digests_equal']}"
    )
    print("  search  seconds     x   kernels mean/worst    forward mean/worst   with skewed mean/worst   at")
    for run in row["runs"]:
        rows = [*SHOWN, max(run["forward_ms"])]
        first = next(other for other in row["runs"] if other["search"] == "stock")["forward_ms"]
        at = "  ".join(f"{rows}: {run['forward_ms'][rows][0] / first[rows][0] - 1:+.2%}" for rows in rows)
        regrets = "   ".join(
            f"{run[what]['mean']:+.2%} {run[what]['worst']:+.2%}"
            for what in ("kernels", "forward", "forward_with_skewed")
        )
        print(f"  {run['search']:7} {run['seconds']:7.2f} {stock / run['seconds']:5.1f}   {regrets}   {at}")


if __name__ == "__main__":
    main()
