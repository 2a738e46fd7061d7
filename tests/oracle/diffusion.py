"""Servers that write blocks of tokens: random ones with --dllm-algorithm, beside SGLang's answers.

python -m tests.oracle.diffusion --seed 5 --count 200 [--releases 0.5.17,0.5.23] [--record FILE]
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.oracle.commands import Command
from tests.oracle.comparing import compare_drawn
from tests.oracle.draws import Draw
from tests.oracle.published import MADE_UP, published
from tests.oracle.rare import FLAGS

_ALGORITHMS = (*("LowConfidence", "JointThreshold") * 4, "JointThresholdInDel", "Gemma4Renoise", "Dream")
_CANVAS = ("Gemma4Renoise",) * 8 + ("LowConfidence",)
_EDITS = ("JointThresholdInDel",) * 3 + ("JointThreshold",)
# Drawn already, and of what nothing is asked here: sizes that SGLang never looks at again.
_APART = ("--dllm-algorithm", "--mem-fraction-static", "--ep-size")
_OTHERS = ("meta-llama/Llama-3.1-8B-Instruct", "openai/gpt-oss-20b")
# What the algorithm's own rules read or change.
_NEAR = {
    "--attention-backend": ("flashinfer", "triton", "fa3", "fa4", "trtllm_mha"),
    "--prefill-attention-backend": ("flashinfer", "triton", "fa4"),
    "--decode-attention-backend": ("flashinfer", "triton", "fa4"),
    "--page-size": (1, 2, 4, 8, 16, 32, 64, 128, 256),
    "--disable-radix-cache": (),
    "--disable-cuda-graph": (),
    "--disable-decode-cuda-graph": (),
    "--cuda-graph-backend-decode": ("full", "disabled"),
    "--cuda-graph-backend-prefill": ("full", "breakable", "disabled"),
    "--pp-size": (2,),
    "--disaggregation-mode": ("prefill", "decode"),
    "--enable-hierarchical-cache": (),
    "--enable-lmcache": (),
    "--enable-lora": (),
    "--enable-mixed-chunk": (),
    "--disable-overlap-schedule": (),
    "--max-running-requests": (1, 8, 300),
    "--moe-runner-backend": ("triton", "flashinfer_cutlass", "flashinfer_trtllm"),
    "--speculative-algorithm": ("NGRAM", "EAGLE"),
}


def diffusion_commands(seed: int, count: int, releases: Sequence[str], gpus: Sequence[str]) -> list[Command]:
    chance = random.Random(f"diffusion {seed}")
    made_up = [name for name in published() if name.startswith(f"{MADE_UP}-diffusion")]
    others = [name for name in _OTHERS if name in published()]
    return [_command(chance, one, [*made_up * 8, *others], releases, gpus) for one in range(count)]


def _command(
    chance: random.Random, number: int, models: list[str], releases: Sequence[str], gpus: Sequence[str]
) -> Command:
    model = chance.choice(models)
    draw = Draw(chance, chance.choice(releases), chance.choice(gpus), model, [])
    draw.words = ["--model-path", published()[model].path, "--trust-remote-code"]
    algorithms = _CANVAS if "canvas" in model else _EDITS if "edits" in model else _ALGORITHMS
    draw.add("--dllm-algorithm", draw.one(algorithms))
    draw.add("--tp-size", draw.one((1, 1, 2, 4)))
    for flag in chance.sample(sorted(_NEAR), chance.choice((0, 1, 1, 2, 3))):
        draw.add(flag, *([chance.choice(_NEAR[flag])] if _NEAR[flag] else []))
    for flag in chance.sample(sorted(set(FLAGS) - {*_NEAR, *_APART}), chance.choice((0, 0, 1))):
        draw.add(flag, *([chance.choice(FLAGS[flag])] if FLAGS[flag] else []))
    return Command(number, draw.release, draw.gpu, model, tuple(draw.words))


def main() -> None:
    compare_drawn("diffusion", (__doc__ or "")[:86], diffusion_commands, 200)


if __name__ == "__main__":
    main()
