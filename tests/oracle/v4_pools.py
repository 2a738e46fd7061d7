"""How large a release's own pools of DeepSeek-V4 are, for random servers: asked inside it, and kept.

python -m tests.oracle.v4_pools --seed 1 --count 24
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runtime.server.parallel import stage_layers
from runtime.server.parallel_config import ParallelConfig
from runtime.server.releases import RELEASES
from tests.oracle.deepseek_v4 import FLASH, PRO
from tests.oracle.inside import run_inside
from tests.oracle.wheels import WORK, wheel_of

RECORDED = Path(__file__).parent / "recorded/v4_pools.jsonl.gz"
GPU = "H200"
_GIB = 1 << 30


def config_of(case: dict[str, Any]) -> dict[str, Any]:
    shape = {"num_hidden_layers": case["layers"], "compress_ratios": case["ratios"], "num_hash_layers": 0}
    return {**(PRO if case["pro"] else FLASH), **shape}


def draw(dice: random.Random) -> dict[str, Any]:
    """A model's layers, a server, one of its stages, and what is left for its pools."""
    layers = dice.choice((2, 5, 16, 43, 61))
    kinds = dice.choice(((0, 4, 128), (4, 128), (0, 4), (0, 128)))
    tp, dp = dice.choice(((1, 1), (4, 1), (8, 1), (8, 2), (8, 8)))
    pp = dice.choice((1, 1, 1, 2))
    stage = stage_layers(layers, ParallelConfig(tp=tp, pp=pp), dice.randrange(pp))
    argv = ["--tp-size", str(tp), "--pp-size", str(pp), "--dp-size", str(dp)]
    argv += ["--enable-dp-attention"] if dp > 1 else []
    for flag, values in (
        ("--max-running-requests", (None, None, 1, 3, 48, 1024, 20000)),
        ("--swa-full-tokens-ratio", (None, None, None, 0.02, 0.35, 0.8, 1.0)),
        ("--max-total-tokens", (None, None, None, 700, 100_000)),
        ("--context-length", (None, None, 4096, 200_000)),
    ):
        value = dice.choice(values)
        argv += [] if value is None else [flag, str(value)]
    return {
        "pro": dice.random() < 0.3,
        "layers": layers,
        "ratios": [dice.choice(kinds) for _ in range(layers)] + [0] * dice.choice((0, 1, 1, 3)),
        "argv": argv,
        "stage": [stage[0], stage[-1] + 1],
        "rest": dice.choice((0, 1, 4, 20, 61, 110)) * _GIB + dice.randrange(_GIB),
    }


def asked(release: str, cases: list[dict[str, Any]], work: Path) -> Iterator[dict[str, Any]]:
    lines = [json.dumps({**case, "config": config_of(case)}) for case in cases]
    return run_inside("read_pools", wheel_of(release, work), GPU, work, lines, deadline=1200)


def answers(release: str, seed: int, count: int, work: Path) -> Iterator[dict[str, Any]]:
    dice = random.Random(f"{release} {seed}")
    cases = [draw(dice) for _ in range(count)]
    for case, answer in zip(cases, asked(release, cases, work), strict=True):
        yield {"release": release, **case, "answer": answer}


def read() -> list[dict[str, Any]]:
    with gzip.open(RECORDED, "rt") as file:
        return [json.loads(line) for line in file]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--release", action="append", help="default: all; those of others stay as they are")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=24, help="cases a release")
    parser.add_argument("--work", type=Path, default=WORK, help="where the wheels are kept")
    options = parser.parse_args()
    work, found = options.work.absolute(), []
    for version in (row.version for row in RELEASES):
        if version in (options.release or (version,)):
            found += answers(version, options.seed, options.count, work)
        else:
            found += [one for one in read() if one["release"] == version]
    lines = "".join(json.dumps(one) + "\n" for one in found)
    RECORDED.write_bytes(gzip.compress(lines.encode(), mtime=0))


if __name__ == "__main__":
    main()
