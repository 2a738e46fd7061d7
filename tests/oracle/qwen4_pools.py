"""How large a release's own pools of Qwen4 are, for random servers: asked inside it, and kept.

python -m tests.oracle.qwen4_pools --seed 1 --count 12
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runtime.server.parallel import stage_layers
from runtime.server.parallel_config import ParallelConfig
from tests.memory.checkpoints import DATA
from tests.oracle.inside import run_inside
from tests.oracle.published import published
from tests.oracle.wheels import WORK, wheel_of

RECORDED, GPU = DATA / "sglang_qwen4_pools.json", "H200"
RELEASES = ("0.5.20", "0.5.21", "0.5.22", "0.5.23")
_GIB = 1 << 30


def config_of(case: dict[str, Any]) -> dict[str, Any]:
    config = published()["Qwen/Qwen3.8-Flash-Next"].config
    return {**config, "text_config": {**config["text_config"], **case["text"]}}


def draw(dice: random.Random) -> dict[str, Any]:
    """What a file says, a server, one of its stages, and what is left for its pools."""
    tp, dp = dice.choice(((1, 1), (2, 1), (8, 1), (8, 2), (8, 8)))
    pp = dice.choice((1, 1, 1, 2))
    stage = stage_layers(48, ParallelConfig(tp=tp, pp=pp), dice.randrange(pp))
    argv = ["--tp-size", str(tp), "--pp-size", str(pp), "--dp-size", str(dp)]
    argv += ["--enable-dp-attention"] if dp > 1 else []
    for flag, values in (
        ("--max-running-requests", (None, None, 8, 48, 1024)),
        ("--max-total-tokens", (None, None, None, 100_000)),
        ("--context-length", (None, None, 4096)),
        ("--kv-cache-dtype", (None, None, "fp8_e4m3")),
        ("--max-mamba-cache-size", (None, None, 80)),
        ("--mamba-radix-cache-strategy", (None, "extra_buffer")),
    ):
        value = dice.choice(values)
        argv += [] if value is None else [flag, str(value)]
    argv += dice.choice(([], ["--disable-radix-cache"]))
    return {
        "text": dice.choice(({}, {}, {"ple_layer_ids": [2, 30]}, {"indexer_compress_ratio": 16,
            "indexer_budget": 8192}, {"ple_layer_ids": [], "ngram_size": 4})),
        "argv": argv,
        "kept": "fp8_e4m3" if "fp8_e4m3" in argv else "bfloat16",
        "stage": [stage[0], stage[-1] + 1],
        "rest": dice.choice((4, 20, 61)) * _GIB + dice.randrange(_GIB),
    }  # fmt: skip


def answers(release: str, seed: int, count: int, work: Path) -> Iterator[dict[str, Any]]:
    dice = random.Random(f"{release} {seed}")
    cases = [draw(dice) for _ in range(count)]
    lines = [json.dumps({**case, "config": config_of(case)}) for case in cases]
    told = run_inside("read_pools", wheel_of(release, work), GPU, work, lines, deadline=1200)
    for case, answer in zip(cases, told, strict=True):
        yield {"release": release, **case, "answer": answer}


def main() -> None:
    options = argparse.ArgumentParser(
        prog="python -m tests.oracle.qwen4_pools", description=(__doc__ or "")[:60]
    )
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--count", type=int, default=12)
    options.add_argument("--work", type=Path, default=WORK, help="where the wheels are kept")
    asked = options.parse_args()
    rows = [row for one in RELEASES for row in answers(one, asked.seed, asked.count, asked.work.absolute())]
    RECORDED.write_text("[\n" + ",\n".join(f" {json.dumps(row)}" for row in rows) + "\n]\n")


if __name__ == "__main__":
    main()
