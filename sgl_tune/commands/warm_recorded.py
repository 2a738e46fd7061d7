"""`sgl-tune warm` where a server is there to ask: the plan is the record of its own start."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from runtime.ghost.gpus import Gpu as Ghost
from sgl_tune.asking.whom import ByServer
from sgl_tune.cli.format import Format
from sgl_tune.cli.out import Output
from sgl_tune.commands.recorded_page import SCHEMA_VERSION, show_recorded
from sgl_tune.deployment.versions import Gpu
from sgl_tune.errors import Ended, UsageError
from sgl_tune.memory.ghost.live import Live
from sgl_tune.processes.command import Python
from sgl_tune.processes.interruption import Interruption, end_by, interruptible
from sgl_tune.recorded.asked import asking
from sgl_tune.recorded.plan import RecordedPlan
from sgl_tune.servers.server import Server
from sgl_tune.verify.by_server import Served, served
from sgl_tune.verify.environment import Target
from sgl_tune.verify.findings import Verdict
from sgl_tune.verify.judge import Judge
from sgl_tune.warm.devices import DeviceKind, choose_devices
from sgl_tune.warm.result_page import show_warmed

if TYPE_CHECKING:
    from sgl_tune.warm.result import Warmed

MISSED = 1


class ProofKind(str, Enum):
    files = "files"
    server = "server"


@dataclass(frozen=True, slots=True)
class Wishes:
    """How it is warmed, as typed. `prove`: None where nothing is."""

    dry_run: bool
    device: DeviceKind
    gpus: str
    timeout: float
    replace: bool
    prove: ProofKind | None
    target: Target


def warm_by_server(
    asked: ByServer, server: Server, wishes: Wishes, here: tuple[Gpu, ...], out: Output
) -> None:
    """Ends as the command does."""
    wishes.target.check_server(server.python, server.flashinfer)
    with asking(asked, server, Live(out, server)) as one:
        plan, question = one.plan(max(1, len(here))), one.question
        if wishes.dry_run or not plan.caches or plan.obstacle:
            _show_plan(plan, out)
            raise Ended(plan.exit_code)
        warmed = tuned(plan, question.gpu, wishes, here, server, out)
        read = served(one, wishes.target) if wishes.prove is ProofKind.server else None
    out.result(
        warmed_json(plan, warmed, read),
        human=lambda: _show_warmed(out, warmed, read),
        quiet=[str(path) for cache in warmed.caches for path in cache.written.paths],
    )
    is_good = warmed.is_good and (read is None or not read.findings)
    is_good = is_read_by(out, wishes.target, warmed) and is_good
    raise Ended(max(plan.exit_code, 0 if is_good else MISSED))


def is_read_by(out: Output, target: Target, warmed: Warmed) -> bool:
    """Whether the server of --target takes files that were tuned in the environment of this machine."""
    if target.metadata is None:
        return True
    judge, found = Judge(target), True
    for cache in warmed.caches:
        judged = judge.judge(cache.written.paths[0], cache.written.paths[0].read_bytes())
        if judged.verdict not in (Verdict.HIT, Verdict.PARTIAL):
            out.warn(f"{target.origin}: {judged.findings[0].message}")
            found = False
    return found


def _show_warmed(out: Output, warmed: Warmed, read: Served | None) -> None:
    show_warmed(out, warmed)
    if read is not None:
        out.line(f"proof by the server: {read.says}", "red" if read.findings else "green", indent=2)
        for found in read.findings:
            out.line(str(found), "red", indent=4)


def tuned(
    plan: RecordedPlan, meant: Ghost, wishes: Wishes, here: tuple[Gpu, ...], server: Server, out: Output
) -> Warmed:
    """On the GPUs here, which must be of the kind that the plan is for."""
    devices = choose_devices(wishes.device, wishes.gpus, None, here)
    if devices.kind != "cuda":
        raise UsageError(
            f"{meant.name} tunes what its server asks, and no GPU driver answers here",
            "run it on the machine that serves; --dry-run shows the plan",
        )
    odd = next((here[n].name for n in devices.gpus if here[n].name != meant.name), None)
    if odd is not None:
        raise UsageError(
            f"the record is of {meant.name}, and the GPU here is {odd}",
            "tune on a machine of its kind; leave out --gpu to plan for this one",
        )
    return _warmed(plan, wishes, devices.gpus, server, out)


def _warmed(plan: RecordedPlan, wishes: Wishes, gpus: tuple[int, ...], server: Server, out: Output) -> Warmed:
    from sgl_tune.warm.recorded.story import PROVER, WORKER, CallSettings, How, warm_records, workforce

    how = How(WORKER, PROVER, Python(str(server.python)))
    settings = CallSettings(gpus, wishes.timeout, wishes.replace, wishes.prove is not None)
    try:
        with interruptible(), workforce(how) as force:
            return warm_records(plan, settings, out, force)
    except Interruption as interruption:
        out.error(str(interruption))
        raise Ended(end_by(interruption)) from None


def _show_plan(plan: RecordedPlan, out: Output) -> None:
    out.result(
        {"schema_version": SCHEMA_VERSION, **plan.to_json()},
        human=lambda: show_recorded(out, plan),
        quiet=[str(plan.deployment.cache_dir / path) for cache in plan.caches for path in cache.paths],
    )
    if out.format is Format.quiet and plan.exit_code:
        out.warn(f"{plan.deployment.name}: {plan.says}")


def warmed_json(plan: RecordedPlan, warmed: Warmed, read: Served | None) -> dict[str, Any]:
    proof = {"server_proof": read.to_json()} if read else {}
    data = {**warmed.to_json(), "verdict": plan.verdict_json(), **proof}
    return {"schema_version": SCHEMA_VERSION, **data}
