"""Servers of sparse attention, told its kernels at random, beside SGLang's answers: which ones they are.

python -m tests.oracle.sparse --seed 5 --count 300 [--releases 0.5.17,0.5.23] [--record FILE]
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from runtime.server.flags import flags_of
from tests.oracle.commands import Command
from tests.oracle.comparing import compare_drawn
from tests.oracle.published import published

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
    compare_drawn("sparse", (__doc__ or "")[:100], sparse_commands, 300)


if __name__ == "__main__":
    main()
