"""The server command after `--`, as words and as one quoted string."""

from __future__ import annotations

import shlex
from pathlib import Path
from random import Random

from sgl_tune.deployment.options import flag_names
from tests.fuzz.mutate import Words, mutated_words
from tests.fuzz.parser import Parser, command

_START = ("python", "-m", "sglang.launch_server")
_SEEDS: tuple[Words, ...] = (
    (
        *_START,
        "--model-path",
        "Qwen/Qwen3-30B-A3B",
        "--tp",
        "4",
        "--moe-runner-backend",
        "flashinfer_cutlass",
    ),
    ("sglang", "serve", "zai-org/GLM-5.1-FP8", "--tp", "8", "--dp", "8", "--enable-dp-attention", "--ep=8"),
    ("SGLANG_CACHE_DIR=cache", "exec", *_START, "--model", "openai/gpt-oss-120b", "--context-length", "128k"),
    ("env", "A=b", *_START, "--model", "DeepSeek-V3", "--tp", "8", "--speculative-algorithm", "EAGLE"),
    (
        *_START,
        "--model",
        "GLM-5.1",
        "--flashinfer-autotune-skip-ops",
        "a",
        "b",
        "--nnodes",
        "2",
        "--tp",
        "16",
    ),
    ("--model", "Qwen3-30B-A3B", "--chunked-prefill-size", "8192", "--max-running-requests", "512"),
)
_FLAGS = (
    *(*flag_names(), "--port", "--host", "--config", "--json-model-override-args", "--log-level"),
    *("--attn-cp-size", "--moe-dp-size", "-m", "--trust-remote-code", "--max-total-tokens"),
)


def _make(random: Random) -> Words:
    words = mutated_words(_SEEDS, _FLAGS, random)
    if random.random() < 0.3:
        return (random.choice((shlex.join, " ".join))(words),)
    return words


def _read(words: Words, folder: Path) -> None:
    arch = "sm100" if len(str(words)) % 2 else "sm90"
    command(
        "warm", "--dry-run", "--flashinfer-version", "0.7.2", "--arch", arch, "--format", "json", "--", *words
    )


PARSER = Parser(_make, _read)
