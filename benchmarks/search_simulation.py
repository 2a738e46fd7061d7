"""The search's decisions on recorded tactic times with simulated noise: regret and cost. No GPU needed.

    PYTHONPATH=. python benchmarks/search_simulation.py
    ... search_simulation.py --replays 1000 --curve-replays 200 --svg docs/search.svg

The recorded times (one H200, the mean of two runs) are the truth; a simulated GPU adds to each launch the
spread between the 16 routings that the kernels take turns through, a drifting clock, disturbances, and a
difference between GPUs. FlashInfer's own 3 + 10 launches meet the same noise. `--svg` draws, for every switch
of the policy, cost against regret at several of its values, over all shapes.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean as mean
from typing import Any

from benchmarks.record import write_record
from benchmarks.simulated_gpu import shapes
from benchmarks.simulated_search import over, replayed, simulate_stock
from benchmarks.svg import Curve, page
from runtime.autotune.search import SearchPolicy

SWITCHES: dict[str, tuple[Any, ...]] = {
    "pilot_every": (2, 5, 8, 32),
    "sweep": ((1,), (1, 3), (1, 4, 10)),
    "stages": ((1,), (1, 3), (2, 4, 10)),
    "near": (0.1, 0.2, 0.35, 0.6),
    "most": (6, 10, 16, 30),
    "hopeless": (1.3, 1.7, 2.5, 4.0),
    "samples": (2, 4, 8, 16),
    "unseen": (1.0, 1.5, 2.0, 3.0),
    "uneven": (0.03, 0.1, 0.3, math.inf),
    "margin": (0.01, 0.02, 0.03, 0.04, 0.08),
    "finalists": (1, 2, 4, 8),
    "crossed": (1, 2, 3, 6),
    "rounds": (2, 4, 6, 8, 12),
    "round_margin": (0.006, 0.012, 0.02, 0.05),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replays", type=int, default=20, help="of each table")
    parser.add_argument("--curve-replays", type=int, default=20, help="of each table at each point")
    parser.add_argument("--svg", type=Path, help="draw cost against regret for every switch, here")
    parser.add_argument("--out")
    options = parser.parse_args()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        rows = list(_compared(pool, options.replays))
        curves = _switches(pool, options.curve_replays) if options.svg else {}
    if options.svg:
        options.svg.write_text(_drawn(curves, options.curve_replays))
        print(options.svg)
    record = {
        "replays": options.replays,
        "curve_replays": options.curve_replays,
        "rows": rows,
        "switches": curves,
    }
    print(write_record("search_simulation", record, options.out))


def _compared(pool: ProcessPoolExecutor, replays: int) -> Iterator[dict[str, Any]]:
    print(
        f"{'shape':18} {'search':13} {'seconds':>8} {'regret':>8} {'worst':>7} {'of all':>7} {'launches':>9}"
    )
    for shape in shapes():
        stock = over([simulate_stock(shape, seed) for seed in range(min(replays, 20))])
        found = {"FlashInfer's": stock}
        counts = (1, 2, 4, 8)
        ours = pool.map(partial(replayed, shape, replays), counts)
        found |= {
            f"ours, {count} GPU" + "s" * (count > 1): one for count, one in zip(counts, ours, strict=True)
        }
        for name, one in found.items():
            print(
                f"{shape:18} {name:13} {one.seconds:8.2f} {one.regret:8.2%} {one.usual_worst:7.2%} "
                f"{one.worst:7.2%} {one.launches:9.0f}",
                flush=True,
            )
            yield {"shape": shape, "search": name, **one.__dict__}


def _switches(pool: ProcessPoolExecutor, replays: int) -> dict[str, list[dict[str, Any]]]:
    """Each switch at its values, everything else as it is: means over the shapes."""
    jobs = {
        (name, value, shape): pool.submit(
            replayed, shape, replays, 1, replace(SearchPolicy(), **{name: value})
        )
        for name, values in SWITCHES.items()
        for value in values
        for shape in shapes()
    }
    curves: dict[str, list[dict[str, Any]]] = {}
    for name, values in SWITCHES.items():
        for value in values:
            found = [jobs[name, value, shape].result() for shape in shapes()]
            point = {"value": str(value), "is_default": getattr(SearchPolicy(), name) == value}
            point |= {
                "seconds": mean(one.seconds for one in found),
                "regret": mean(one.regret for one in found),
            }
            point |= {"usual_worst": mean(one.usual_worst for one in found)}
            curves.setdefault(name, []).append(point)
    return curves


def _drawn(curves: dict[str, list[dict[str, Any]]], replays: int) -> str:
    drawn = [
        Curve(
            name,
            [(point["seconds"], 100 * point["regret"]) for point in points],
            [point["value"] for point in points],
            next((n for n, point in enumerate(points) if point["is_default"]), None),
        )
        for name, points in curves.items()
    ]
    title = f"Search on {len(shapes())} recorded shapes, {replays} replays each: seconds, mean regret in %"
    return page(title, drawn)


if __name__ == "__main__":
    main()
