"""Tunes recorded MoE layers on this machine's GPU and measures them: beside the server's own choice in
turns, and beside an exhaustive run of the same configurations.

    python benchmarks/moe_configs.py OUT.json RECORD.json ... [--exhaustive NAME ...]

A record is what `sgl-tune mem-report --record FILE` keeps of a stock server's start on the ghost. The Python
that runs this is the server's. Each result is written at once, and the next layer compiles meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from runtime.ghost.gpus import gpus  # noqa: E402
from runtime.record.checked import read  # noqa: E402
from runtime.record.record import Record  # noqa: E402
from sgl_tune.config_files.root import VARIABLE  # noqa: E402
from sgl_tune.config_tuning.job import LayerJob, Report  # noqa: E402
from sgl_tune.config_tuning.plan import ConfigPlan, config_plan  # noqa: E402
from sgl_tune.config_tuning.story import COMPILER, WORKER, LayerResult, _job, _written  # noqa: E402
from sgl_tune.processes.command import THIS  # noqa: E402
from sgl_tune.processes.scratch import scratch  # noqa: E402
from sgl_tune.warm.launch import Fleet, Workers  # noqa: E402

ROWS = (1, 16, 64, 256, 1024, 4096, 8192)
_ROUNDS, _ROUND_MS = 12, 4.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("records", type=Path, nargs="+")
    parser.add_argument("--exhaustive", action="append", default=[])
    parser.add_argument("--roots", type=Path, help="Where a root of each layer is written.")
    given = parser.parse_args()
    if given.records == [Path("-")]:
        one_step()
        return
    results: dict[str, Any] = {}
    root = given.roots or given.out.resolve().parent / "roots"
    with scratch() as private:
        os.environ["TRITON_CACHE_DIR"] = str(private.folder / "triton")
        with (
            Workers(COMPILER, private, Fleet(1, "cpu", timeout=3600), THIS) as compiler,
            Workers(WORKER, private, Fleet(1, "cuda", (0,), 3600), THIS) as worker,
        ):
            jobs = [_prepared(path, root) for path in given.records]
            ready = [threading.Event() for _ in jobs]
            compiled: list[Any] = [None] * len(jobs)

            def compile_in_order() -> None:
                for place, (_, _, job) in enumerate(jobs):
                    compiled[place] = compiler.run({"job": asdict(job)}, lambda *_: None)
                    ready[place].set()

            threading.Thread(target=compile_in_order, daemon=True).start()
            for place, (name, plan, job) in enumerate(jobs):
                ready[place].wait()
                report = read(Report, worker.run({"job": asdict(job)}, lambda *_: None), "report")
                layer = plan.layers[0]
                done = _written(plan, LayerResult(layer, report, compiled[place], ()))
                results[name] = {
                    "tuned": done.to_json(),
                    "failed": report.failed,
                    "versions": report.versions,
                }
                results[name]["compiled"] = compiled[place]
                print(name, done.says, f"late {report.late}", flush=True)
                results[name] |= _in_a_fresh_process(name, plan, job, name in given.exhaustive)
                given.out.write_text(json.dumps(results, indent=1))
                _show(name, results[name])


def _prepared(path: Path, root: Path) -> tuple[str, ConfigPlan, LayerJob]:
    name = path.name.split(".")[1]
    plan = config_plan([Record.from_json(path.read_bytes())], root / name)
    own = subprocess.run(
        [sys.executable, "-c", "import sglang; print(sglang.__path__[0])"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    assert plan.source is not None
    plan = replace(plan, source=Path(own, *_below(plan.source)))
    return name, plan, _job(plan, plan.layers[0], gpus()["h200"])


def _below(source: Path) -> tuple[str, ...]:
    """The folder inside the server's package, which lies elsewhere on this machine."""
    last = max(place for place, part in enumerate(source.parts) if part == "sglang")
    return source.parts[last + 1 :]


def _in_a_fresh_process(name: str, plan: ConfigPlan, job: LayerJob, exhaustive: bool) -> dict[str, Any]:
    step = {"job": asdict(job), "root": str(plan.root), "exhaustive": exhaustive}
    done = subprocess.run(
        [sys.executable, __file__, "-", "-"], input=json.dumps(step), text=True,
        capture_output=True, timeout=400,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        return {"broken": (done.stdout + done.stderr)[-3000:]}
    log = [line for line in done.stderr.splitlines() if "onfig" in line]
    return {**json.loads(lines[-1]), "log": log[-20:]}


def one_step() -> None:
    """In turns: the stock look-up without the root and with it. SGLang's own log is this process's stderr."""
    import logging

    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
    step = json.load(sys.stdin)
    job, root = read(LayerJob, step["job"], "job"), step["root"]
    import torch

    from runtime.moe_configs.inside.places import places
    from runtime.moe_configs.layer import Layers

    here = places()
    layer = Layers(job.call, here, job.arguments, "cuda")
    found: dict[str, Any] = {"turns": {}}
    with torch.inference_mode():
        logging.info("config look-up with the root begins")
        os.environ[VARIABLE] = root
        layer.batch(64, 1)[0]()
        logging.info("config look-up with the root ended")
        for rows in ROWS:
            found["turns"][rows] = _turns(layer, here, rows, root)
        if step["exhaustive"]:
            os.environ[VARIABLE] = root
            here.configs.get_moe_configs.cache_clear()
            found["regret"] = {rows: _regret(layer, job, rows) for rows in ROWS}
    print(json.dumps(found), flush=True)
    os._exit(0)


def _turns(layer: Any, here: Any, rows: int, root: str) -> dict[str, float]:
    from runtime.moe_configs.clock import GraphClock
    from runtime.moe_configs.search import PRESENT

    clocks = []
    for place in (None, root, None):
        os.environ.pop(VARIABLE, None)
        if place:
            os.environ[VARIABLE] = place
        here.configs.get_moe_configs.cache_clear()
        clock = GraphClock(layer, rows, 4 if rows <= 512 else 2)
        first = clock([PRESENT], 1)[0]
        clocks.append(clock)
    launches = max(1, round(_ROUND_MS / max(first, 1e-3) / len(clocks[0]._batch)))
    times: list[list[float]] = [[], [], []]
    for number in range(_ROUNDS):
        order = range(3) if number % 2 else range(2, -1, -1)
        for place in order:
            times[place] += clocks[place]([PRESENT], launches)
    stock, ours, again = map(median, times)
    gains = [one / other for one, other in zip(times[0], times[1], strict=True)]
    noise = [one / other for one, other in zip(times[0], times[2], strict=True)]
    spread = {"gain_least": min(gains), "gain_most": max(gains), "itself": median(noise)}
    return {"stock_ms": stock, "ours_ms": ours, "again_ms": again, "gain": median(gains), **spread}


def _regret(layer: Any, job: LayerJob, rows: int) -> dict[str, Any]:
    """Two exhaustive runs; then their winners and the file's choice in turns."""
    from runtime.moe_configs.candidates import choices
    from runtime.moe_configs.clock import GraphClock
    from runtime.moe_configs.search import PRESENT

    clock = GraphClock(layer, rows, 4 if rows <= 512 else 2)
    everything = [*choices(job.kind, rows)]
    winners = [_best(clock, everything) for _ in range(2)]
    names = [PRESENT, *winners]  # the root is set: what is present is the file's choice
    first = clock([winners[0]], 1)[0]
    launches = max(1, round(_ROUND_MS / max(first, 1e-3) / len(clock._batch)))
    times: list[list[float]] = [[], [], []]
    for number in range(_ROUNDS):
        turn = list(range(3))[:: 1 if number % 2 else -1]
        for place, took in zip(turn, clock([names[place] for place in turn], launches), strict=True):
            times[place].append(took)
    best = min(median(times[1]), median(times[2]))
    return {
        "ours": median(times[0]) / best - 1,
        "itself": median(times[2]) / median(times[1]) - 1,
        "tried": len(everything),
        "best": str(winners[0]),
    }


def _best(clock: Any, names: Sequence[Any]) -> Any:
    """Each of them for as long; the ten best again, in four turns."""
    once = clock(names, 1)
    launches = max(1, round(6.0 / min(once) / len(clock._batch)))
    times = dict(zip(names, clock(names, max(1, launches // 4)), strict=True))
    near = sorted(times, key=lambda name: times[name])[:10]
    rounds = [clock(near[:: 1 if turn % 2 else -1], launches)[:: 1 if turn % 2 else -1] for turn in range(4)]
    means = {name: fmean(one[place] for one in rounds) for place, name in enumerate(near)}
    return min(means, key=lambda name: means[name])


def _show(name: str, result: dict[str, Any]) -> None:
    if "broken" in result:
        print(name, "BROKEN", result["broken"][-1500:], flush=True)
        return
    for rows, one in result["turns"].items():
        times = f"{one['stock_ms']:.4f} {one['ours_ms']:.4f} {one['gain']:.3f}x"
        print(f"{name} {rows}: {times}, itself {one['itself']:.3f}")
    for rows, one in result.get("regret", {}).items():
        print(f"{name} {rows}: regret {one['ours']:+.4f}, itself {one['itself']:+.4f}, {one['best']}")
    print(*result["log"][:12], sep="\n", flush=True)


if __name__ == "__main__":
    main()
