"""Write vLLM's files: FlashInfer's content under the names of vLLM's ranks."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from runtime.server.bounds import MOST_RANKS
from sgl_tune.cache.rank_names import VllmRank
from sgl_tune.cache.store import Written, write_group
from sgl_tune.errors import UsageError
from sgl_tune.export.source import Source

_STORE = "--to flashinfer-store, into the root that vLLM's log names"


@dataclass(frozen=True, slots=True)
class Ranks:
    """vLLM's own parallelism. Processes are numbered by replica, then stage, then tensor-parallel rank."""

    tp: int
    pp: int
    dp: int

    def names(self, stage: int) -> list[str]:
        first = [(dp, (dp * self.pp + stage) * self.tp) for dp in range(self.dp)]
        return [VllmRank(dp, rank + tp).filename for dp, rank in first for tp in range(self.tp)]


def ranks_of(source: Source, tp: int | None, pp: int | None, dp: int | None) -> Ranks:
    stages = len(source.stages)
    if pp is not None and stages > 1 and pp != stages:
        raise UsageError(
            f"--pp {pp}: the cache has {stages} pipeline stages, each with entries of its own",
            f"--pp {stages}, or warm a deployment of {pp}",
        )
    first = source.stages[0]
    ranks = Ranks(tp or first.tp_ranks, pp or stages, dp or first.replicas)
    if ranks.tp * ranks.pp * ranks.dp > MOST_RANKS:
        raise UsageError(f"--tp {ranks.tp} --pp {ranks.pp} --dp {ranks.dp}: more than {MOST_RANKS} ranks")
    if ranks == Ranks(1, 1, 1) and source.ways.has_v2:
        raise UsageError("a vLLM server of one rank reads FlashInfer's managed store and no file", _STORE)
    return ranks


def write_vllm(
    source: Source, ranks: Ranks, folder: Path, replacing: bool, say: Callable[[str], None]
) -> list[Written]:
    written = []
    for number in range(ranks.pp):
        stage = source.stages[number if len(source.stages) > 1 else 0]
        paths = [folder / name for name in ranks.names(number)]
        written.append(
            write_group(paths, stage.entries, stage.environment, replace_conflicting=replacing, say=say)
        )
    return written
