"""A report from the user's own server: started on the ghost, with each what-if and each step of a sweep."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runtime.ghost.gpus import Gpu, gpus
from runtime.ghost.outside import MEASURED_ON, Outside
from runtime.record.record import Record
from runtime.sglang.variables import Left
from sgl_tune.asking.asking import Answers, Asking, Listener
from sgl_tune.asking.local_model import with_local_models
from sgl_tune.asking.question import Question, question_of
from sgl_tune.cli.format import Format
from sgl_tune.cli.out import Output
from sgl_tune.memory.ghost.changes import Change, parse_change, parse_steps
from sgl_tune.memory.ghost.held import held_of
from sgl_tune.memory.ghost.live import Live
from sgl_tune.memory.ghost.of_record import report_of
from sgl_tune.memory.ghost.ranks import Layout, first_rank, layout_of, other_ranks
from sgl_tune.memory.ghost.remedies import MOST_SECONDS, helpful
from sgl_tune.memory.ghost.words import release_of, words
from sgl_tune.memory.options import MemoryOptions
from sgl_tune.memory.report import Answer, MemoryReport, Remedy, worst
from sgl_tune.memory.trial import flag_line
from sgl_tune.processes.scratch import scratch
from sgl_tune.servers.server import Server
from sgl_tune.units import parse_size
from sgl_tune.writing import write_text

_NAMED = 3


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Which server is asked, and how. `record`: where the record of the leading rank is written."""

    server: Server
    trust_remote_code: bool = False
    record: Path | None = None


def asked_of(asked: MemoryOptions, options: ServerOptions, out: Output) -> Answer:
    """The answer of this server. Phases are shown while the server's own steps pass."""
    what_ifs = [parse_change(text) for text in asked.what_if]
    sweep = parse_steps(asked.sweep) if asked.sweep else ()
    first_rank(asked.ranks)
    with ExitStack() as closing:
        work = closing.enter_context(scratch()).folder
        question = to_ask(asked, options.server, work)
        changed = {one.name: one.of(question) for one in (*what_ifs, *sweep)}
        answers = closing.enter_context(Answers(Asking(work, options.trust_remote_code)))
        starts = Starts(answers, asked.ranks, Live(out, options.server))
        ranks = starts.ranks(question, asked.snapshot)
        found = worst([report for _, report in ranks])
        if options.record is not None:
            lead = next(record for record, report in ranks if report is found)
            write_text(options.record, lead.to_json())
        reports = {name: starts.worst(other) for name, other in changed.items()}
        remedies, untried = _helpful(found, layout_of(ranks[0][0]), question, starts, out)
        found = replace(
            found,
            remedies=remedies,
            what_if=_of(what_ifs, reports),
            ranks=tuple(report for _, report in ranks) if len(ranks) > 1 else (),
            notes=(*_ranks_note(ranks, asked.ranks), *found.notes, *untried),
        )
        return Answer(found, _of(sweep, reports))


def to_ask(asked: MemoryOptions, server: Server, work: Path) -> Question:
    """What was typed as a question to this server; a model's folder may be made in `work`."""
    total = parse_size(asked.gpu_memory, "--gpu-memory") if asked.gpu_memory else None
    taken = parse_size(asked.taken, "--taken") if asked.taken else 0
    question = question_of(server, asked.flags, asked.command, total, taken)
    return with_local_models(question, asked.flags.model_config, work, os.environ)


def _helpful(
    found: MemoryReport, layout: Layout, question: Question, starts: Starts, out: Output
) -> tuple[tuple[Remedy, ...], list[str]]:
    """Starts that fit, where this one does not; nothing is looked for where one word is wanted."""
    if out.format is Format.quiet:
        return (), []
    release = release_of(question.server.sglang)

    def start(changes: Mapping[str, Any]) -> tuple[MemoryReport, float]:
        out.note(f"trying {flag_line(dict(changes), release)}")
        ranks = starts.ranks(question.with_flags(words(release, changes)))
        return worst([report for _, report in ranks]), sum(record.cost.cpu for record, _ in ranks)

    remedies, untried = helpful(found, layout, release, start)
    return remedies, [f"not tried, as {MOST_SECONDS:g} s of CPU went by: {flags}" for flags in untried]


class Starts:
    """Starts servers, and reports each: the ranks that were asked for, the worst of them, or one."""

    def __init__(self, answers: Answers, ranks: str, say: Listener) -> None:
        self._answers, self._ranks, self._say = answers, ranks, say

    def ranks(self, question: Question, snapshot: Path | None = None) -> list[tuple[Record, MemoryReport]]:
        """The first rank, and the others that its record shows; all get as many tokens as the fewest."""
        first = self.one(replace(question, rank=first_rank(self._ranks)), snapshot)
        layout = layout_of(first[0])
        others = [self.one(replace(question, rank=rank)) for rank in other_ranks(self._ranks, layout)]
        found = [first, *others]
        if layout.pp == 1 or not all(record.sizes for record, _ in found):
            return found
        fewest = min(record.sizes.kv_tokens for record, _ in found if record.sizes)
        limited = question.with_flags(["--max-total-tokens", str(fewest)])
        return [
            (record, report)
            if record.sizes is None or record.sizes.kv_tokens == fewest
            else self.one(replace(limited, rank=record.asked.rank))
            for record, report in found
        ]

    def worst(self, question: Question) -> MemoryReport:
        return worst([report for _, report in self.ranks(question)])

    def one(self, question: Question, snapshot: Path | None = None) -> tuple[Record, MemoryReport]:
        record = self._answers.answer(question, self._say, snapshot)
        return record, reported(record, question, self._answers)


def reported(record: Record, question: Question, answers: Answers) -> MemoryReport:
    """With what of the command the start was not given."""
    outside: Outside = answers.asking.outside
    title = os.path.basename(question.title.rstrip("/")) or question.title  # noqa: PTH119
    report = report_of(record, question.gpu.name, question.gpu_bytes, title, outside.doubt_of(record.counted))
    left = answers.check(question).left
    return replace(
        report,
        flags=question.text.replace(question.model, question.title),
        held=held_of(record, outside, question.taken_bytes),
        notes=(
            *_left_notes([one for one in left if not one.matters]),
            *_doubt_notes(record, question.gpu),
            *report.notes,
        ),
    )


def _doubt_notes(record: Record, gpu: Gpu) -> Iterator[str]:
    """What of the free bytes nobody knows, beside the error bar."""
    if not record.phases:
        return
    if gpu.key != MEASURED_ON:
        measured = gpus()[MEASURED_ON].name
        yield f"memory outside torch, and its ±, was measured on {measured}: on {gpu.name} nobody did"
    absent = sorted({one.name for one in record.modules if one.state == "stub"})
    if absent:
        code = f"the code of {len(absent)} modules that are not there ({_few(absent)})"
        yield f"memory outside torch is without {code}"


def _few(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _left_notes(left: Sequence[Left]) -> list[str]:
    """One line per reason."""
    names: dict[str, list[str]] = {}
    for one in left:
        names.setdefault(one.why, []).append(one.name)
    return [f"not given to the start, since {why}: {', '.join(of)}" for why, of in names.items()]


def _ranks_note(ranks: Sequence[tuple[Record, MemoryReport]], asked: str) -> list[str]:
    total = layout_of(ranks[0][0]).ranks
    if total == 1 or len(ranks) == total:
        return []
    names = ", ".join(report.rank_name for _, report in ranks)
    alike = "" if asked.isdecimal() else "; the others of a stage hold as much as its first"
    return [f"of {total} ranks {names} {'was' if len(ranks) == 1 else 'were'} started{alike}"]


def _of(changes: Sequence[Change], reports: Mapping[str, MemoryReport]) -> dict[str, MemoryReport]:
    return {one.name: reports[one.name] for one in changes}
