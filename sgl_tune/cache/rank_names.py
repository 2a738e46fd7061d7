"""The ranks in the names of SGLang's and vLLM's cache files."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

_RANK = re.compile(r"rank_tp(\d{1,6})_pp(\d{1,6})_dp(\d{1,6})(?:_gpu([\w-]{1,80}))?\.json")
_NUMBER = r"(0|[1-9][0-9]{0,5})"
LARGEST_GROUP = 1024  # a larger number is no rank: do not look for a million files
_VLLM_RANK = re.compile(rf"autotune_configs_dp{_NUMBER}_rank{_NUMBER}\.json")


class RankName(NamedTuple):
    """The rank in a file's name. Only the megamoe backend adds the GPU's UUID."""

    tp: int
    pp: int
    dp: int
    gpu: str | None = None

    @staticmethod
    @lru_cache(maxsize=4096)
    def parse(filename: str) -> "RankName | None":
        match = _RANK.fullmatch(filename)
        return RankName(int(match[1]), int(match[2]), int(match[3]), match[4]) if match else None

    @property
    def filename(self) -> str:
        gpu = f"_gpu{self.gpu}" if self.gpu else ""
        return f"rank_tp{self.tp}_pp{self.pp}_dp{self.dp}{gpu}.json"

    @property
    def order(self) -> tuple[int, int, int, str]:
        """Return a sort key without None, because most names have no GPU."""
        return self.tp, self.pp, self.dp, self.gpu or ""

    def __str__(self) -> str:
        return self.filename.removeprefix("rank_").removesuffix(".json")


class VllmRank(NamedTuple):
    """A data-parallel rank, and the process's number among all of the server's."""

    dp: int
    rank: int

    @staticmethod
    def parse(filename: str) -> "VllmRank | None":
        match = _VLLM_RANK.fullmatch(filename)
        return VllmRank(int(match[1]), int(match[2])) if match else None

    @property
    def filename(self) -> str:
        return f"autotune_configs_dp{self.dp}_rank{self.rank}.json"


def width_of(shared: Mapping[int, int]) -> int | None:
    """Return how many neighbouring ranks share a DP rank, by the DP rank of each; None if it is not clear."""
    widths = range(1, max(shared, default=0) + 2)
    return next((w for w in widths if all(rank // w == dp for rank, dp in shared.items())), None)


def names_text(names: Iterable[str]) -> str:
    """Return the ranks in SGLang's or vLLM's file names, or "" if one name has none."""
    return _names_text(tuple(names))


@lru_cache(maxsize=256)  # folders mostly have the same names
def _names_text(names: tuple[str, ...]) -> str:
    ranks = [rank for name in names if (rank := RankName.parse(name))]
    if ranks and len(ranks) == len(names):
        return ranks_text(ranks)
    others = [vllms for name in names if (vllms := VllmRank.parse(name))]
    if not others or len(others) < len(names):
        return ""
    data_parallel = f" dp{_spans(rank.dp for rank in others)}" if any(rank.dp for rank in others) else ""
    return f"rank{_spans(rank.rank for rank in others)}{data_parallel}"


def ranks_text(ranks: Sequence[RankName]) -> str:
    """Return `tp0-7 dp0-7`; an axis that is always 0 is left out."""
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
