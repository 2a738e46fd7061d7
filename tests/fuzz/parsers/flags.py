"""The flags before `--`, of every command that is cheap: nothing here tunes, asks or removes."""

from __future__ import annotations

from pathlib import Path
from random import Random

from sgl_tune.deployment.options import flag_names
from tests.fuzz.mutate import Words, mutated_words
from tests.fuzz.parser import Parser, command

_WARM = ("warm", "--dry-run")
_PRUNE = ("prune", "--dry-run")
_SEEDS: tuple[tuple[Words, Words], ...] = (
    (_WARM, ("--tp", "8", "--dp", "8")),
    (
        _WARM,
        ("--model-path", "Qwen/Qwen3-30B-A3B", "--moe-runner-backend", "flashinfer_cutlass", "--tp", "4"),
    ),
    (
        _WARM,
        (
            "--model",
            "GLM-5.1",
            "--tp",
            "8",
            "--ep",
            "8",
            "--dp",
            "8",
            "--enable-dp-attention",
            "--arch",
            "sm100",
            "--pp",
            "2",
        ),
    ),
    (_WARM, ("--model", "DeepSeek-V3", "--speculative-algorithm", "EAGLE", "--format", "json", "--tp", "8")),
    (
        _WARM,
        ("--gpu", "h200", "--sglang-version", "0.5.17", "--flashinfer-version", "0.6.18", "--nnodes", "1"),
    ),
    (("verify",), ("cache", "--tp", "2", "--format", "json", "--strict")),
    (("verify",), ("--model", "Qwen3-30B-A3B", "--arch", "sm90", "--as-user", "0")),
    (("inspect",), ("cache", "--filter", "age>30d", "--sort", "size", "--limit", "2")),
    (("diff",), ("cache", "cache", "--format", "json")),
    (_PRUNE, ("cache", "--older-than", "30d", "--max-size", "1GB", "--keep", "8e60")),
    (_PRUNE, ("--stale", "--cache-dir", "cache", "--arch", "sm90", "--flashinfer-version", "0.7.2")),
)
_FLAGS = (
    *(*flag_names(), "--format", "--deployment", "--target", "--as-user", "--strict", "--filter", "--sort"),
    *("--limit", "--entries", "--older-than", "--max-size", "--keep", "--stale", "--workers", "--timeout"),
    *("--gpus", "--device", "--replace", "-h", "--help", "--version", "--install-completion"),
)


def _make(random: Random) -> Words:
    head, seed = random.choice(_SEEDS)
    return (*head, *map(_inside, mutated_words((seed,), _FLAGS, random)))


def _inside(word: str) -> str:
    """No path that leads out of the folder: a listing of `/` takes long, and is nobody's mistake."""
    return word.replace("..", ".").lstrip("/") if "/" in word or word.startswith(".") else word


def _read(words: Words, folder: Path) -> None:
    (folder / "cache/flashinfer/autotune/0.7.2/sm90/8e60aabbccddeeff").mkdir(parents=True)
    command(*words)


PARSER = Parser(_make, _read)
