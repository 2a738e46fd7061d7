"""Servers of sparse attention, told its kernels at random, beside SGLang's answers: which ones they are.

python -m tests.oracle.sparse --seed 5 --count 300 [--releases 0.5.17,0.5.23] [--record FILE]
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

from runtime.server.flags import flags_of
from runtime.server.releases import RELEASES
from tests.oracle.ask import ask
from tests.oracle.commands import Command
from tests.oracle.compare import page, tally
from tests.oracle.machine import USUAL_GPUS
from tests.oracle.ours import our_answer
from tests.oracle.published import published
from tests.oracle.record import write
from tests.oracle.wheels import WORK

_TYPES = ("deepseek_v32", "glm_moe_dsa")
_NEAR: dict[str, tuple[object, ...]] = {
    "--kv-cache-dtype": ("fp8_e4m3", "fp8_e4m3", "bfloat16", "bf16", "fp8_e5m2"),
    "--disaggregation-mode": ("prefill", "decode"),
    "--enable-mixed-chunk": (),
    "--attention-backend": ("triton", "flashinfer"),
}


def sparse_commands(seed: int, count: int, releases: Sequence[str], gpus: Sequence[str]) -> list[Command]:
    dice = random.Random(f"sparse {seed}")
    models = [name for name, one in published().items() if one.config.get("model_type") in _TYPES]
    return [_command(dice, one, models, releases, gpus) for one in range(count)]


def _command(
    dice: random.Random, number: int, models: list[str], releases: Sequence[str], gpus: Sequence[str]
) -> Command:
    model, release = dice.choice(models), dice.choice(releases)
    words = ["--model-path", published()[model].path, "--trust-remote-code", "--tp-size", "8"]
    for flag in _kernel_flags(release):
        words += [flag, dice.choice(_known(release, flag))] if dice.random() < 0.5 else []
    for flag in dice.sample(sorted(_NEAR), dice.choice((0, 1, 1, 2))):
        words += [flag, *([str(dice.choice(_NEAR[flag]))] if _NEAR[flag] else [])]
    return Command(number, release, dice.choice(gpus), model, tuple(words))


def _kernel_flags(release: str) -> list[str]:
    own = "nsa" if release == "0.5.12" else "dsa"
    return [f"--{own}-{phase}-backend" for phase in ("prefill", "decode")]


def _known(release: str, flag: str) -> tuple[str, ...]:
    return tuple(flags_of(release).by_name[flag].choices or ())


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.oracle.sparse", description=(__doc__ or "")[:100])
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--count", type=int, default=300)
    options.add_argument("--releases", default=",".join(row.version for row in RELEASES))
    options.add_argument("--gpus", default=",".join(USUAL_GPUS))
    options.add_argument("--work", type=Path, default=WORK)
    options.add_argument("--record", type=Path, help="keep SGLang's answers in this file")
    asked = options.parse_args()
    commands = sparse_commands(asked.seed, asked.count, asked.releases.split(","), asked.gpus.split(","))
    pairs = list(ask(commands, asked.work.absolute(), jobs=2))
    if asked.record is not None:
        write(asked.record, pairs)
    print(*page(tally((one, our_answer(one), theirs) for one, theirs in pairs)), sep="\n")


if __name__ == "__main__":
    main()
