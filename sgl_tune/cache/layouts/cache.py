"""One cache on the disk: its layout, its place and its files."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sgl_tune.cache.rank_names import RankName

MANIFEST = "sgl-tune.json"
LOCK = ".sgl-tune.lock"
JOURNAL = ".sgl-tune.journal"
BROKEN = ".broken"
PRIVATE = ".sgl-tune-"
SHORTEST_KEY = 4
KEY = re.compile(rf"[0-9a-f]{{{SHORTEST_KEY},64}}")
_TEMPORARY = re.compile(r"\.sgl-tune-\d+-[0-9a-f]{8}\.tmp")


class RankFile(NamedTuple):
    path: Path
    rank: RankName | None


class Cache(NamedTuple):
    """One folder that one deployment reads. `runs`: SGLang's results of starts that were told to reuse
    nothing. `leftovers`: temporary files of writers, most of them dead. `broken`: rank files that our
    writer set aside."""

    path: Path
    layout: str
    flashinfer: str | None = None
    arch: str | None = None
    key: str | None = None
    files: tuple[RankFile, ...] = ()
    leftovers: tuple[Path, ...] = ()
    runs: tuple[Path, ...] = ()
    broken: tuple[Path, ...] = ()
    manifest: Path | None = None
    root: Path | None = None  # the folder that a user named: no link below it is followed

    def groups(self) -> list[tuple[RankFile, ...]]:
        """Return the groups of files that a server compares byte for byte: the TP ranks of a pipeline
        stage, and with plain data parallelism those of each replica."""
        ranked = sorted(((f.rank, f) for f in self.files if f.rank), key=lambda pair: pair[0].order)
        ranks = [rank for rank, _ in ranked]
        replicas = {stage: _is_replicated(ranks, stage) for stage in {rank.pp for rank in ranks}}
        groups: dict[tuple[int, int], list[RankFile]] = {}
        for rank, file in ranked:
            groups.setdefault((rank.pp, rank.dp if replicas[rank.pp] else 0), []).append(file)
        return [tuple(groups[which]) for which in sorted(groups)]


def _is_replicated(ranks: Sequence[RankName], stage: int) -> bool:
    """Whether DP ranks are replicas: with DP attention a TP rank has one DP rank, with replicas several."""
    seen = [(rank.tp, rank.gpu) for rank in ranks if rank.pp == stage]
    return len(set(seen)) < len(seen)


def temporary_name() -> str:
    return f".sgl-tune-{os.getpid()}-{os.urandom(4).hex()}.tmp"


def is_temporary(name: str) -> bool:
    return bool(_TEMPORARY.fullmatch(name))


def is_private(folder: str) -> bool:
    """Whether only our own commands create folders of this name, for staging, removal or downloads. They
    are no part of a cache or a store."""
    return folder.startswith(PRIVATE)


def is_unfinished(name: str) -> bool:
    """Whether the file belongs to an interrupted write of ours, which only the lock's holder may settle."""
    return name == JOURNAL or is_temporary(name)
