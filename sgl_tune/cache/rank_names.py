"""The ranks in the names of SGLang's cache files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

_RANK = re.compile(r"rank_tp(\d{1,6})_pp(\d{1,6})_dp(\d{1,6})(?:_gpu([\w-]{1,80}))?\.json")


class RankName(NamedTuple):
    """The rank that SGLang puts into a file's name; the GPU's UUID only for the megamoe backend."""

    tp: int
    pp: int
    dp: int
    gpu: str | None = None

    @staticmethod
    @lru_cache(maxsize=4096)
    def parse(filename: str) -> RankName | None:
        match = _RANK.fullmatch(filename)
        return RankName(int(match[1]), int(match[2]), int(match[3]), match[4]) if match else None

    @property
    def filename(self) -> str:
        gpu = f"_gpu{self.gpu}" if self.gpu else ""
        return f"rank_tp{self.tp}_pp{self.pp}_dp{self.dp}{gpu}.json"

    @property
    def order(self) -> tuple[int, int, int, str]:
        """Most names have no GPU, and None does not compare."""
        return self.tp, self.pp, self.dp, self.gpu or ""

    def __str__(self) -> str:
        return self.filename.removeprefix("rank_").removesuffix(".json")


def ranks_text(ranks: Sequence[RankName]) -> str:
    """`tp0-7 dp0-7`; an axis with nothing but 0 goes without saying."""
    if not ranks:
        return "-"
    words = [f"tp{_spans(rank.tp for rank in ranks)}"]
    for axis in ("pp", "dp"):
        values = {getattr(rank, axis) for rank in ranks}
        if values != {0}:
            words.append(f"{axis}{_spans(values)}")
    return " ".join(words)


def _spans(numbers: Iterable[int]) -> str:
    ordered = sorted(set(numbers))
    spans: list[list[int]] = []
    for number in ordered:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)
