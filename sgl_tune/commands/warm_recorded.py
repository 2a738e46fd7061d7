"""`sgl-tune warm` if a server can be asked: the plan comes from the record of the server's own start."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from sgl_tune.asking.live import Live
from sgl_tune.asking.whom import ByServer
from sgl_tune.cli.out import Output
from sgl_tune.commands.warm_wishes import ProofKind, Wishes, answer_each
from sgl_tune.recorded.asked import asking
from sgl_tune.recorded.plan import RecordedPlan
from sgl_tune.servers.server import Server

if TYPE_CHECKING:
    from sgl_tune.verify.by_server import Served
    from sgl_tune.warm.plan_page import Answer
    from sgl_tune.warm.result import Warmed


def warm_by_server(meant: Sequence[tuple[str, ByServer, Server]], wishes: Wishes, out: Output) -> NoReturn:
    """Warm each deployment in turn, print one result, and exit."""

    def answered(name: str, by: ByServer, server: Server) -> Answer:
        if len(meant) > 1:
            out.note(f"{name}:")
        return _answer(by, server, wishes, out)

    answer_each([(one[0], partial(answered, *one)) for one in meant], out)


def _answer(asked: ByServer, server: Server, wishes: Wishes, out: Output) -> Answer:
    if wishes.target:
        wishes.target.check_server(server.python, server.flashinfer)
    from sgl_tune.config_tuning.page import answer_of, plan_answer
    from sgl_tune.config_tuning.plan import config_plan
    from sgl_tune.pins.lock import write_lock

    read = None
    with asking(asked, server, Live(out, server)) as one:
        plan = one.plan(max(1, len(wishes.here)))
        configs = config_plan(plan.records, plan.deployment.cache_dir, wishes.replace)
        if wishes.dry_run or plan.obstacle or not (plan.caches or (wishes.here and configs.untuned)):
            return plan_answer(out, plan, configs)
        from sgl_tune.commands.warm_tuned import tuned_both

        warmed, done = tuned_both(plan, configs, one.question.gpu, wishes, server, out)
        write_lock(plan.deployment.cache_dir)
        if warmed is None:
            return plan_answer(out, plan, configs, done)
        if wishes.prove is ProofKind.server:
            from sgl_tune.verify.by_server import UNTOLD, served

            read = served(one, wishes.target or UNTOLD)
    written = [cache.written.paths for cache in warmed.caches]
    are_read = wishes.are_read([paths[0] for paths in written], out)
    show, data = partial(_show_warmed, out, warmed, read), warmed_json(plan, warmed, read)
    is_good = are_read and warmed.is_good and not (read and read.findings)
    code = max(plan.exit_code, int(not is_good))
    return answer_of(out, data, show, configs, done, [path for paths in written for path in paths], code)


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
