"""`sgl-tune warm --everything`: compile the kernels, tune the tactics, then start the server once."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from sgl_tune.asking.live import Live
from sgl_tune.asking.whom import ByServer
from sgl_tune.cli.out import Output
from sgl_tune.commands.warm_tuned import tuned_both
from sgl_tune.commands.warm_wishes import Wishes
from sgl_tune.compile.bake import bake
from sgl_tune.compile.everything import compile_all, finish, show_filled, show_modules
from sgl_tune.compile.goal import goal_of
from sgl_tune.compile.toolkit import toolkit_of
from sgl_tune.config_tuning.page import configs_json, show_configs
from sgl_tune.config_tuning.plan import config_plan
from sgl_tune.config_tuning.story import LayerResult
from sgl_tune.deployment.versions import Gpu
from sgl_tune.errors import Ended, UsageError
from sgl_tune.pins.lock import write_lock
from sgl_tune.processes.interruption import Interruption, ending
from sgl_tune.recorded.asked import asking
from sgl_tune.servers.installed import libraries_of
from sgl_tune.servers.server import Server
from sgl_tune.stores.places import export_lines, kubernetes_lines
from sgl_tune.verify.environment import Target
from sgl_tune.warm.plan_page import show_recorded
from sgl_tune.warm.result import Warmed
from sgl_tune.warm.result_page import show_warmed


def fill_root(asked: ByServer, server: Server, wishes: Wishes, out: Output, for_kubernetes: bool) -> NoReturn:
    """Do all of `warm --everything` and end the command with its exit code."""
    if wishes.target is not None:
        _check_target(wishes.target, server)
    warmed: Warmed | None = None
    baked, done = None, list[LayerResult]()
    tunes = not wishes.compiles_only and bool(wishes.here)
    with asking(asked, server, Live(out, server)) as one:
        plan = one.plan(max(1, len(wishes.here)))
        goal = goal_of(one, plan, asked.command)
        toolkit = toolkit_of(goal.python)
        if toolkit.release.partition(".")[0] != str(server.cuda):
            there = f"the toolkit in {toolkit.home} has CUDA {toolkit.release}"
            way = f"set CUDA_HOME to a toolkit of CUDA {server.cuda}"
            raise UsageError(f"{there}, the server's torch of {server.cuda}", way)
        with ending(out.error), _kept():
            built = compile_all(goal, toolkit, out)
            if not tunes:
                ranks = [record.asked.rank for record in plan.records]
                baked = bake(one, ranks, goal, toolkit, out)
    with ending(out.error), _kept():
        # For workers and the server: they compile into the root, and ninja finds what is there.
        os.environ.update(goal.variables_while_filling)
        os.environ.update(toolkit.environment(os.environ))
        configs = config_plan(plan.records, goal.cache_dir, wishes.replace)
        if tunes and not plan.obstacle and (plan.caches or configs.untuned):
            warmed, done = tuned_both(plan, configs, one.question.gpu, wishes, server, out)
        filled = finish(goal, wishes.timeout, built, baked, wishes.here, out)
        if warmed is not None or done:
            write_lock(goal.cache_dir)
    lines = kubernetes_lines if for_kubernetes else export_lines
    told = {**(warmed or plan).to_json(), "verdict": plan.verdict.to_json(), "everything": filled.to_json()}

    def human() -> None:
        if warmed is not None:
            show_warmed(out, warmed)
        show_configs(out, configs, done)
        show_filled(out, filled)

    out.result({**told, "moe_configs": configs_json(configs, done)}, human, lines(filled.environment))
    missed = not warmed.is_good if warmed is not None else goal.tunes and not wishes.compiles_only
    raise Ended(max(plan.exit_code if tunes else 0, int(missed), filled.exit_code))


def _check_target(target: Target, server: Server) -> None:
    """Refuse a server that differs from the target's where the keys of its stores would differ."""
    target.check_server(server.python, server.flashinfer)
    here = {**libraries_of(server.folders, server.python_version), "sglang": server.sglang}
    for name, wanted in {**target.libraries, "sglang": target.sglang or server.sglang}.items():
        if here.get(name) != wanted:
            raise UsageError(
                f"{target.origin} has {name} {wanted}, and {server.python} has {here.get(name, 'none')}",
                "compile in the target's own image, or name a server like its with --server",
            )


def show_root(asked: ByServer, server: Server, here: tuple[Gpu, ...], out: Output) -> NoReturn:
    """Print what `warm --everything` would do: the plan of the tactics, and the modules to compile."""
    with asking(asked, server, Live(out, server)) as one:
        plan = one.plan(max(1, len(here)))
        goal = goal_of(one, plan, asked.command)
    modules, configs = goal.modules, config_plan(plan.records, goal.cache_dir)

    def human() -> None:
        show_recorded(out, plan)
        show_configs(out, configs, [])
        show_modules(out, modules)

    data = {**plan.to_json(), "everything": modules.to_json(), "moe_configs": configs_json(configs, [])}
    out.result(data, human, [module.name for module in modules.known])
    raise Ended(max(plan.exit_code, int(bool(modules.unknown))))


@contextmanager
def _kept() -> Iterator[None]:
    try:
        yield
    except Interruption as interruption:
        raise interruption.saying("compiled kernels are kept: the same command continues") from None
