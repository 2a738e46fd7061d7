"""What a server of each family runs on, by quantization, GPU and all-to-all: what unset backends become."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from runtime.server.asked import Asked
from runtime.server.checkpoint import Checkpoint
from runtime.server.errors import ConfigError
from runtime.server.family_backends import FAMILY_BACKENDS
from runtime.server.gpus import find_gpu
from runtime.server.releases import RELEASES, Release
from runtime.server.resolve import resolve
from tests.book.rows import Row
from tests.oracle.published import MADE_UP, published

_ASKED: tuple[dict[str, Any], ...] = ({}, {"moe_a2a_backend": "deepep"}, {"quantization": "fp8"})


def families_run() -> Iterator[Row]:
    named = dict.fromkeys(sorted(row.architectures)[0] for row in FAMILY_BACKENDS)
    for architecture, quantized in product(named, ("", "-nvfp4")):
        one = published().get(f"{MADE_UP}{quantized}/{architecture}")
        if one is None:
            continue
        for asked, gpu, release in product(
            _ASKED, ("H200", "B200"), (RELEASES[0], RELEASES[5], RELEASES[-1])
        ):
            said = f"{one.name} {asked} {gpu} {release.version}"
            yield said, _run(Checkpoint(one.config), asked, gpu, release)


def _run(model: Checkpoint, asked: dict[str, Any], gpu: str, release: Release) -> list[Any]:
    try:
        server = resolve(Asked("models/m", tp_size=8, **asked), model, None, find_gpu(gpu), release)
    except ConfigError as error:
        return [error.message]
    return [
        server.moe_runner_backend,
        server.attention_backend,
        server.page_size,
        server.kv_cache_dtype,
        server.fp4_gemm_backend,
        server.tunes_because,
    ]


FAMILIES_OF = {"families_run": families_run}
