"""One deployment of the book: a command on a checkpoint, of a release, on a GPU, in an environment."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from runtime.server.checkpoint import Checkpoint
from runtime.server.decoders.served_classes import SERVED
from tests.oracle.published import published

BOOK = Path(__file__).with_name("deployments.jsonl.gz")
CHECKPOINTS = Path(__file__).with_name("checkpoints.json.gz")
Answer = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """`changes` are members of the checkpoint's config.json that are otherwise; None: there is none."""

    release: str
    gpu: str
    model: str
    argv: tuple[str, ...] = ()
    changes: Mapping[str, Any] = field(default_factory=dict, hash=False)
    environ: Mapping[str, str] = field(default_factory=dict, hash=False)
    flashinfer: str = ""

    def __str__(self) -> str:
        more = [f"{name}={value}" for name, value in self.environ.items()]
        more += [self.release, self.gpu, self.model, *self.argv]
        changes = f" with {json.dumps(self.changes)}" if self.changes else ""
        return " ".join(filter(None, [*more, self.flashinfer and f"FlashInfer {self.flashinfer}"])) + changes

    @property
    def checkpoint(self) -> Checkpoint:
        known = checkpoint_of(self.model)
        changed = {**known.hf, **self.changes}
        return Checkpoint(
            {name: told for name, told in changed.items() if told is not None}, known.quant_file
        )


def checkpoint_of(model: str) -> Checkpoint:
    """Published, or as the config class of its family has it by itself."""
    if model in published():
        one = published()[model]
        return Checkpoint(one.config, one.modelopt_file or {})
    return Checkpoint(checkpoints()[model])


def read() -> list[tuple[Case, Answer]]:
    with gzip.open(BOOK, "rt") as file:
        return [(_case(told), answer) for told, answer in map(json.loads, file)]


def write(pairs: Iterable[tuple[Case, Answer]]) -> None:
    told = [json.dumps([_plain(case), answer], separators=(",", ":")) for case, answer in pairs]
    BOOK.write_bytes(gzip.compress("".join(f"{line}\n" for line in told).encode(), mtime=0))


def _case(told: dict[str, Any]) -> Case:
    return Case(**{**told, "argv": tuple(told.get("argv", ()))})


def _plain(case: Case) -> dict[str, Any]:
    told = {name: getattr(case, name) for name in Case.__dataclass_fields__}
    return {name: value for name, value in told.items() if value not in ("", (), {})}


@cache
def checkpoints() -> dict[str, dict[str, Any]]:
    """Of every family that the runtime builds."""
    found: dict[str, dict[str, Any]] = json.loads(gzip.decompress(CHECKPOINTS.read_bytes()))
    return {name: {**one, "architectures": _served(one)} for name, one in found.items()}


def _served(config: dict[str, Any]) -> Any:
    """By a class that SGLang has: transformers calls some otherwise, and has none for others."""
    told, served = config["architectures"], SERVED.get(config["model_type"])
    return told if served is None or told[0] in served else [served[0]]
