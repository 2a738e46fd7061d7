"""`sgl-tune warm` where a server is there to ask: the plan is the record of its own start."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgl_tune.asking.asking import Answers, Asking
from sgl_tune.asking.local_model import with_local_models
from sgl_tune.asking.question import Question, question_of, release_of_image
from sgl_tune.cli.format import Format
from sgl_tune.cli.out import Output
from sgl_tune.commands.recorded_page import show_recorded
from sgl_tune.deployment.cache_dir import default_cache_dir
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.versions import Gpu
from sgl_tune.errors import Ended, UsageError
from sgl_tune.memory.ghost.live import Live
from sgl_tune.processes.command import Python
from sgl_tune.processes.interruption import Interruption, end_by, interruptible
from sgl_tune.processes.scratch import scratch
from sgl_tune.servers.server import NoServer, Server, find_server
from sgl_tune.warm.devices import DeviceKind, choose_devices
from sgl_tune.warm.recorded.asking import records_of
from sgl_tune.warm.recorded.planned import RecordedPlan, Whose, plan_of
from sgl_tune.warm.result_page import show_warmed

if TYPE_CHECKING:
    from sgl_tune.warm.result import Warmed

MISSED = 1


@dataclass(frozen=True, slots=True)
class ByServer:
    """What of the command says who is asked. `only_core`: an option that the runtime core alone answers."""

    flags: ServerFlags
    command: tuple[str, ...]
    server: str | None
    core: bool
    trust_remote_code: bool
    only_core: str | None

    def found(self) -> Server | None:
        """The server that is asked; None where the runtime core plans."""
        if self.core or self.only_core or not (self.flags.model_path or self.command):
            if self.server is not None:
                beside = "--core" if self.core else self.only_core or "no model"
                raise UsageError(
                    f"--server starts a server by its flags, and {beside} does not go with it",
                    "leave one of them out",
                )
            return None
        release = self.flags.sglang_version or release_of_image(self.command)
        found = find_server(self.server, release)
        if isinstance(found, NoServer):
            if self.server is not None or found.has_sglang:
                raise UsageError(found.why, found.remedy)
            return None
        return found


@dataclass(frozen=True, slots=True)
class Wishes:
    """How it is warmed, as typed."""

    dry_run: bool
    device: DeviceKind
    gpus: str
    timeout: float
    replace: bool
    prove: bool


def warm_by_server(
    asked: ByServer, server: Server, wishes: Wishes, here: tuple[Gpu, ...], out: Output
) -> None:
    """Ends as the command does."""
    with _planned(asked, server, here, out) as (plan, question):
        if wishes.dry_run or not plan.caches or plan.obstacle:
            _show_plan(plan, out)
            raise Ended(plan.exit_code)
        devices = choose_devices(wishes.device, wishes.gpus, None, here)
        if devices.kind != "cuda":
            raise UsageError(
                f"{question.gpu.name} tunes what its server asks, and no GPU driver answers here",
                "run it on the machine that serves; --dry-run shows the plan",
            )
        _check_gpus(question, [here[number] for number in devices.gpus])
        warmed = _warmed(plan, wishes, devices.gpus, server, out)
    out.result(
        warmed_json(plan, warmed),
        human=lambda: show_warmed(out, warmed),
        quiet=[str(path) for cache in warmed.caches for path in cache.written.paths],
    )
    raise Ended(max(plan.exit_code, 0 if warmed.is_good else MISSED))


def _warmed(plan: RecordedPlan, wishes: Wishes, gpus: tuple[int, ...], server: Server, out: Output) -> Warmed:
    from sgl_tune.warm.recorded.story import PROVER, WORKER, CallSettings, How, warm_records, workforce

    how = How(WORKER, PROVER, Python(str(server.python)))
    settings = CallSettings(gpus, wishes.timeout, wishes.replace, wishes.prove)
    try:
        with interruptible(), workforce(how) as force:
            return warm_records(plan, settings, out, force)
    except Interruption as interruption:
        out.error(str(interruption))
        raise Ended(end_by(interruption)) from None


@contextmanager
def _planned(
    asked: ByServer, server: Server, here: Sequence[Gpu], out: Output
) -> Iterator[tuple[RecordedPlan, Question]]:
    with scratch() as private:
        question = question_of(server, asked.flags, asked.command)
        name = question.title.rstrip("/").rpartition("/")[2]
        whose = Whose(name, question.title, _cache_dir(asked, question), question.argv)
        question = with_local_models(question, asked.flags.model_config, private.folder, os.environ)
        with Answers(Asking(private.folder, asked.trust_remote_code)) as answers:
            records = records_of(question, answers, Live(out, server))
        yield plan_of(records, whose, max(1, len(here))), question


def _cache_dir(asked: ByServer, question: Question) -> Path:
    named = asked.flags.cache_dir
    return Path(named) if named else default_cache_dir({**os.environ, **question.environment})


def _check_gpus(question: Question, chosen: Sequence[Gpu]) -> None:
    odd = next((gpu.name for gpu in chosen if gpu.name != question.gpu.name), None)
    if odd is not None:
        raise UsageError(
            f"the record is of {question.gpu.name}, and the GPU here is {odd}",
            "tune on a machine of its kind; leave out --gpu to plan for this one",
        )


def _show_plan(plan: RecordedPlan, out: Output) -> None:
    out.result(
        plan.to_json(),
        human=lambda: show_recorded(out, plan),
        quiet=[str(plan.deployment.cache_dir / path) for cache in plan.caches for path in cache.paths],
    )
    if out.format is Format.quiet and plan.exit_code:
        out.warn(f"{plan.deployment.name}: {plan.says}")


def warmed_json(plan: RecordedPlan, warmed: Warmed) -> dict[str, Any]:
    return {**warmed.to_json(), "verdict": plan.verdict_json()}
