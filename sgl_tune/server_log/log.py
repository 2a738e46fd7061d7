"""Summarise a server's log: which rank died of what, and the memory of each rank."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sgl_tune.errors import UsageError
from sgl_tune.server_log.ends import FOLLOWS, MEMORY, NO_SERVER, REFUSED, Death, Finding
from sgl_tune.server_log.rank_log import RankLog
from sgl_tune.server_log.reader import read_starts
from sgl_tune.server_log.start import Start

_PROCESS = re.compile(r"\bscheduler_(\d{1,5}) \(pid=|\bRank (\d{1,5}) scheduler (?:died|is dead)")

Key = tuple[str, str]  # source and rank


@dataclass(frozen=True, slots=True)
class ServerLog:
    """A server's log. `lead`: the rank that died, else the one with the least free memory. `peers`: the
    ranks of its server. `starts`: the number of starts in the log. `is_last`: this is the last one."""

    lead: RankLog
    ranks: Sequence[RankLog] = ()
    death: Death | None = None
    is_ready: bool = False
    starts: int = 1
    is_last: bool = True
    server_args: str | None = None
    peers: Sequence[RankLog] = ()
    findings: Mapping[Finding, int] = field(default_factory=dict)
    path: Path = field(default=Path("-"), compare=False)

    @property
    def oom(self) -> Death | None:
        return self.death if self.death and self.death.kind.level == MEMORY else None

    @property
    def refusal(self) -> str:
        """Return what SGLang printed when it found too little memory and ended the start itself, or ""."""
        return self.death.text if self.death and self.death.kind.level == REFUSED else ""

    @property
    def ended_by_memory(self) -> bool:
        return self.death is not None and self.death.kind.level in (MEMORY, REFUSED)


def read_server_log(path: Path) -> ServerLog:
    """Return the last start in the file; raise UsageError if it shows none."""
    reader = read_starts(path)
    if not reader.latest:
        raise UsageError(
            f"{path} shows no start of a server: no line of SGLang's start, no error that ends one",
            "give the server's own output, from 'server_args=' on",
        )
    seen = sum(start.shows_a_start for start in reader.starts)
    log = log_of(reader.latest, 1 + seen - len(reader.latest), path)
    return replace(log, is_last=reader.starts[-1] in reader.latest)


def log_of(starts: Iterable[Start], count: int = 1, path: Path = Path("-")) -> ServerLog:
    """Return the log of starts side by side, such as the pods of one service."""
    starts = list(starts)
    ranks: dict[Key, RankLog] = {}
    for start in starts:
        for speaker, rank in start.ranks.items():
            sizes = next((one.sizes for (source, _), one in start.ranks.items()
                          if source == speaker.source and one.sizes), {})  # fmt: skip
            tokens = sizes.get("max_total_num_tokens", rank.kv_tokens)
            phase = "serving" if start.ready else rank.phase
            ranks[speaker] = replace(rank, phase=phase, sizes=sizes, kv_tokens=tokens)
    deaths = [death for start in starts for death in start.deaths if _is_death(death, start)]
    death = min(deaths, key=lambda death: (death.kind.level, death.line), default=None)
    death = death and _with_rank(death, deaths, ranks)
    key = _led_by(death, ranks)
    args = {source: text for start in starts for (source, _), text in start.server_args.items()}
    found: dict[Finding, int] = {}
    for start in starts:
        for finding, times in start.findings.items():
            found[finding] = found.get(finding, 0) + times
    return ServerLog(
        lead=ranks.get(key) or RankLog(*key),
        ranks=[ranks[key] for key in sorted(ranks, key=_order)],
        death=death,
        is_ready=any(start.ready for start in starts),
        starts=count,
        server_args=args.get(key[0]) or args.get("") or next(iter(args.values()), None),
        peers=[ranks[one] for start in starts for one in start.ranks if key in start.ranks],
        findings=found,
        path=path,
    )


def _is_death(death: Death, start: Start) -> bool:
    """Whether the process ended. A failed request has a traceback too, and then the server goes on."""
    if not death.kind.at_start:
        return death.kind.name != NO_SERVER
    if start.spoke.get(death.source, 0) < death.line and not start.ready:
        return True
    same = [one.kind for one in start.deaths if one.source == death.source]
    return any(kind.level >= FOLLOWS and kind.name != NO_SERVER for kind in same)


def _with_rank(death: Death, deaths: Iterable[Death], ranks: Mapping[Key, RankLog]) -> Death:
    """Return the death with its rank. The server's own process names it by the dead process's number."""
    same = [one for one in deaths if one.source == death.source]
    if death.kind.level == FOLLOWS and len({one.rank for one in same if one.kind is death.kind}) > 1:
        return replace(death, rank="")  # each rank shows it: none is the one
    kinds = (death.kind.name, *(("ended",) if death.kind.level == FOLLOWS else ()))
    found = {m[1] or m[2] for one in same if one.kind.name in kinds if (m := _PROCESS.search(one.text))}
    if death.rank or len(found) != 1:
        return death
    number, names = found.pop(), [rank for source, rank in ranks if source == death.source and rank]
    named = [rank for rank in names if f"TP{number}" in rank.split()] if names else [f"rank {number}"]
    return replace(death, rank=named[0]) if len(named) == 1 else death


def _led_by(death: Death | None, ranks: Mapping[Key, RankLog]) -> Key:
    """Return the rank that died, else the rank that came least far or has the least free memory."""
    if death is None:
        free = {key: one.least_free_bytes for key, one in ranks.items()}
        return min(free, key=lambda key: (free[key] is None, free[key] or 0), default=("", ""))
    key = death.source, death.rank
    if death.rank or key in ranks or death.kind.level in (MEMORY, REFUSED):
        return key
    peers = [one for one in ranks if one[0] == death.source]
    return min(peers, key=lambda one: len(ranks[one].steps), default=key)


def _order(key: Key) -> tuple[str, list[int]]:
    """Return a sort key with which TP10 comes after TP9."""
    return key[0], [int(number) for number in re.findall(r"\d+", key[1])]
