"""The same server commands under every release: what an upgrade changes, by SGLang's own answers.

python -m tests.oracle.upgrades
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

from runtime.server.releases import RELEASES
from tests.oracle.ask import ask
from tests.oracle.commands import Command
from tests.oracle.published import published
from tests.oracle.record import write
from tests.oracle.wheels import WORK

UPGRADES = Path(__file__).parent / "recorded/upgrades.jsonl.gz"
MODELS = ("zai-org/GLM-5.1-FP8", "Qwen/Qwen3-235B-A22B")
GPUS = ("B200", "H200")
FLAGS = (
    ("--tp", "8"),
    ("--tp", "8", "--dp", "8", "--enable-dp-attention"),
    ("--tp", "8", "--ep", "8", "--moe-runner-backend", "flashinfer_cutlass"),
    ("--tp", "8", "--speculative-algorithm", "EAGLE", "--max-running-requests", "64"),
)


def upgraded_commands() -> list[Command]:
    found = []
    for model, gpu, flags, row in product(MODELS, GPUS, FLAGS, RELEASES):
        argv = ("--model-path", published()[model].path, *flags)
        found.append(Command(len(found), row.version, gpu, model, argv))
    return found


def main() -> None:
    write(UPGRADES, ask(upgraded_commands(), WORK.absolute(), jobs=2))


if __name__ == "__main__":
    main()
