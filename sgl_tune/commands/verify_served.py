"""`sgl-tune verify` if a server can be asked: its own start on the ghost reads the rank files."""

from dataclasses import replace
from pathlib import Path

from sgl_tune.asking.live import Live
from sgl_tune.cli.out import Output
from sgl_tune.config_tuning.plan import config_plan
from sgl_tune.config_tuning.plan import notes as of_configs
from sgl_tune.recorded.asked import asking
from sgl_tune.verify.by_server import Served, served
from sgl_tune.verify.environment import Target
from sgl_tune.verify.scope import Scope, VerifyOptions


def ask_server(out: Output, asked: VerifyOptions, target: Target) -> tuple[Served, Scope] | None:
    """Return the server's answer, or None if no server can be asked or the question is not for a server."""
    by, path = asked.by, asked.path
    if asked.names_a_deployment and (by.server or len(by.meant()) == 1):
        by = by.one()
    if by.command or by.flags.model_path:  # else the core plans all of the project file
        by = replace(by, flags=target.flags(by.flags, by.command))
    if path is not None and Path(path, "flashinfer", "autotune").is_dir():
        by, path = replace(by, flags=by.flags.changed(cache_dir=path)), None
    by = replace(by, only_core=by.only_core or ("a path" if path is not None else None))
    found = by.found()
    if found is None:
        return None
    with asking(by, found, Live(out, found)) as one:
        answer = served(one, target)
        gpu = one.question.gpu.name.removeprefix("NVIDIA ")
    seen = target._replace(flashinfer=target.flashinfer or found.flashinfer, gpu=gpu)
    plan = answer.plan
    notes = (*plan.notes, *of_configs(config_plan(plan.records, plan.deployment.cache_dir))) if plan else ()
    return answer, Scope(answer.checked, seen, notes, (), answer.findings)
