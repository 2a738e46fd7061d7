"""`sgl-tune verify` if a server can be asked: its own start on the ghost reads the rank files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sgl_tune.asking.live import Live
from sgl_tune.asking.whom import ByServer
from sgl_tune.cli.out import Output
from sgl_tune.config_tuning.plan import config_plan
from sgl_tune.config_tuning.plan import notes as of_configs
from sgl_tune.deployment.project_file import meant_by, the_one
from sgl_tune.recorded.asked import asking
from sgl_tune.verify.by_server import Served, served
from sgl_tune.verify.environment import Target
from sgl_tune.verify.scope import Scope, VerifyOptions


@dataclass(frozen=True, slots=True)
class Who:
    """Which server is asked, as typed. `only_core`: an option that only the runtime core supports."""

    server: str | None
    core: bool
    trust_remote_code: bool
    only_core: str | None


def ask_server(out: Output, asked: VerifyOptions, who: Who, target: Target) -> tuple[Served, Scope] | None:
    """Return the server's answer, or None if no server can be asked or the question is not for a server."""
    flags, words, path = asked.flags, asked.command, asked.path
    if asked.names_a_deployment and (who.server or len(meant_by(flags, words, asked.deployment)) == 1):
        _, flags, words = the_one(flags, words, asked.deployment)
    if words or flags.model_path:  # else the core plans all of the project file
        flags = target.flags(flags, words)
    if path is not None and Path(path, "flashinfer", "autotune").is_dir():
        flags, path = flags.changed(cache_dir=path), None
    only_core = who.only_core or ("a path" if path is not None else None)
    by = ByServer(flags, words, who.server, who.core, who.trust_remote_code, only_core)
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
