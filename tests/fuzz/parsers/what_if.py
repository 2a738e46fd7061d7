"""The small languages of options: --what-if, --sweep, --gpu-memory, --filter, sizes and ages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from runtime.server.errors import ConfigError
from sgl_tune.cache.filters import parse_filters
from sgl_tune.deployment.options import flag_names
from sgl_tune.deployment.versions import parse_gpus
from sgl_tune.errors import UsageError
from sgl_tune.memory.target import target_gpu
from sgl_tune.memory.what_if import parse_sweep, parse_what_if
from sgl_tune.units import parse_age, parse_size
from tests.fuzz import nasty
from tests.fuzz.mutate import of_bytes, of_numbers
from tests.fuzz.parser import Parser

_READERS: tuple[tuple[Callable[[str], Any], tuple[str, ...]], ...] = (
    (
        parse_what_if,
        ("dp=4", "tp=4+ep=4", "no-graphs", "mem-fraction-static=0.86", "disable-cuda-graph=true"),
    ),
    (parse_sweep, ("mem-fraction-static=0.80:0.94:0.01", "tp=1:8:1")),
    (parse_size, ("1GB", "1.5GiB", "4096", "500 kB")),
    (parse_age, ("30d", "12h", "90min")),
    (lambda text: parse_filters([text]), ("age>30d", "size>=1GB", "op~moe", "entries=42", "arch=sm90")),
    (lambda text: target_gpu(None, text, None), ("178.35GiB", "80GB")),
    (lambda text: target_gpu(text, None, None), ("h200", "NVIDIA B200", "A100-80GB")),
    (parse_gpus, ("NVIDIA H200, 9.0, 143771, GPU-6f", "NVIDIA L4, 8.9, 23034, GPU-1\nx, y, z")),
)


def _make(random: Random) -> tuple[int, str]:
    which = random.randrange(len(_READERS))
    text = random.choice(_READERS[which][1])
    for _ in range(random.choice((1, 1, 2))):
        kind = random.randrange(4)
        if kind == 0:
            text = text.replace(random.choice(text or "x"), random.choice(nasty.WORDS))
        elif kind == 1:
            text = f"{random.choice([*flag_names()]).lstrip('-')}={random.choice(nasty.WORDS)}"
        else:
            raw = random.choice((of_bytes, of_numbers))(text.encode("utf-8", "surrogateescape"), random)
            text = raw.decode("utf-8", "surrogateescape").replace("\0", "")
    return which, text


def _read(made: tuple[int, str], folder: Path) -> None:
    _READERS[made[0]][0](made[1])


PARSER = Parser(_make, _read, ours=(UsageError, ConfigError))
