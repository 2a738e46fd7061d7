"""`sgl-tune warm` if a server can be asked: the plan comes from the record of the server's own start."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from sgl_tune.asking.live import Live
from sgl_tune.asking.whom import ByServer
from sgl_tune.cli.out import Output
from sgl_tune.commands.warm_wishes import ProofKind, Wishes
from sgl_tune.errors import Ended
from sgl_tune.recorded.asked import asking
from sgl_tune.recorded.plan import RecordedPlan
from sgl_tune.servers.server import Server

if TYPE_CHECKING:
    from sgl_tune.verify.by_server import Served
    from sgl_tune.warm.result import Warmed


def warm_by_server(asked: ByServer, server: Server, wishes: Wishes, out: Output) -> NoReturn:
    """Warm by the server's plan and end the command with its exit code."""
    if wishes.target:
        wishes.target.check_server(server.python, server.flashinfer)
    from sgl_tune.config_tuning.page import show_plan, tell
    from sgl_tune.config_tuning.plan import config_plan
    from sgl_tune.pins.lock import write_lock

    read = None
    with asking(asked, server, Live(out, server)) as one:
        plan = one.plan(max(1, len(wishes.here)))
        configs = config_plan(plan.records, plan.deployment.cache_dir, wishes.replace)
        layers = configs.untuned if wishes.here else ()
        if wishes.dry_run or plan.obstacle or not (plan.caches or layers):
            show_plan(out, plan, configs)
            raise Ended(plan.exit_code)
        from sgl_tune.commands.warm_tuned import devices_of, tuned, tuned_configs

        gpu = one.question.gpu
        warmed = tuned(plan, gpu, wishes, server, out) if plan.caches else None
        devices_of(gpu, wishes)
        done = tuned_configs(configs, gpu, server.python, wishes.timeout, out) if layers else []
        write_lock(plan.deployment.cache_dir)
        if warmed is None:
            show_plan(out, plan, configs, done)
            raise Ended(plan.exit_code)
        if wishes.prove is ProofKind.server:
            from sgl_tune.verify.by_server import UNTOLD, served

            read = served(one, wishes.target or UNTOLD)
    paths = [path for cache in warmed.caches for path in cache.written.paths]
    show, data = partial(_show_warmed, out, warmed, read), warmed_json(plan, warmed, read)
    tell(out, data, show, configs, done, paths)
    is_good = warmed.is_good and (read is None or not read.findings)
    is_good = wishes.are_read([cache.written.paths[0] for cache in warmed.caches], out) and is_good
    raise Ended(max(plan.exit_code, int(not is_good)))


def _show_warmed(out: Output, warmed: Warmed, read: Served | None) -> None:
    from sgl_tune.warm.result_page import show_warmed

    show_warmed(out, warmed)
    if read is not None:
        out.line(f"proof by the server: {read.says}", "red" if read.findings else "green", indent=2)
        for found in read.findings:
            out.line(str(found), "red", indent=4)


def warmed_json(plan: RecordedPlan, warmed: Warmed, read: Served | None) -> dict[str, Any]:
    proof = {"server_proof": read.to_json()} if read else {}
    return {**warmed.to_json(), "verdict": plan.verdict.to_json(), **proof}
