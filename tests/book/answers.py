"""All that the rules decide of one deployment, by name: JSON that is compared member by member."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from runtime.server.asked import Asked, changed
from runtime.server.checks import ROWS, check_refusals
from runtime.server.choices import Choices
from runtime.server.errors import ConfigError
from runtime.server.flags import flags_of, parse
from runtime.server.flashinfer import flashinfer_of
from runtime.server.gpus import CPU, find_gpu
from runtime.server.modules import modules_of
from runtime.server.moe import runner_behind_deepep
from runtime.server.parallelism import check_layout
from runtime.server.releases import release_named
from runtime.server.resolve import STEPS
from runtime.server.shape import Server
from runtime.server.uncounted import uncounted
from sgl_tune.cli.out import Output
from sgl_tune.deployment.deployment import Deployment, Inputs, deploy
from sgl_tune.deployment.refusals import undivided_heads
from sgl_tune.deployment.versions import Gpu
from sgl_tune.keys.advice import advice
from sgl_tune.keys.gaps import serving_gaps
from sgl_tune.keys.plan import CachePlan, make_plan
from sgl_tune.keys.plan_view import show_plans
from sgl_tune.keys.tunable import _obstacles
from sgl_tune.keys.verdict import verdict_of
from tests.book.cases import Answer, Case, checkpoint_of
from tests.book.plain import plain, refusal, told
from tests.book.sizes import model_of, sizes

_HERE = tuple(Gpu("NVIDIA H200", "sm90", 143771, f"GPU-{number}") for number in range(2))


def answer(case: Case) -> Answer:
    try:
        inputs = _inputs(case)
    except ConfigError as error:
        return _json({"refused": refusal(error)})
    found: Answer = {"refusing": _refusing(inputs), "model": told(model_of, inputs.checkpoint)}
    try:
        deployment = deploy(inputs)
    except ConfigError as error:
        return _json({**found, "refused": refusal(error)})
    found["server"] = _server(deployment.server)
    found["plan"] = told(_planned, deployment)
    if deployment.shape.model is not None:
        found["sizes"] = told(sizes, deployment, deployment.model)
    return _json(found)


def _json(found: Answer) -> Answer:
    read: Answer = json.loads(json.dumps(found))
    return read


def _inputs(case: Case) -> Inputs:
    given = parse(flags_of(case.release), case.argv).given
    asked = changed(Asked(), given)
    check_layout(asked)
    release = release_named(case.release).release
    draft = asked.speculative_draft_model_path
    return Inputs(
        name="one",
        asked=asked,
        checkpoint=case.checkpoint,
        gpu=CPU if case.gpu == CPU.name else find_gpu(case.gpu),
        sglang_version=case.release,
        flashinfer_version=case.flashinfer or release.flashinfer,
        cache_dir=Path("/cache"),
        draft_checkpoint=checkpoint_of(draft.removeprefix("models/")) if draft else None,
        environ=case.environ,
    )


def _refusing(inputs: Inputs) -> list[str]:
    """Every row of the checks whose condition holds, though the first ends a start."""
    release = release_named(inputs.sglang_version).release
    c = Choices(inputs.asked, inputs.checkpoint, inputs.draft_checkpoint, inputs.gpu, release, inputs.environ)
    try:
        for step in STEPS[: STEPS.index(check_refusals)]:
            step(c)
    except ConfigError as error:
        return [f"before them: {error.message}"]
    return [found for number, row in enumerate(ROWS) if row.stands_in(release) for found in _holds(number, c)]


def _holds(number: int, c: Choices) -> Iterator[str]:
    """Behind another that refuses, a condition may not be answerable."""
    row = ROWS[number]
    try:
        if row.when(c):
            yield row.said
    except Exception as error:
        yield f"{row.said}: {type(error).__name__}"


def _server(server: Server) -> Answer:
    whole = {one.name: plain(getattr(server, one.name)) for one in fields(server)}
    left = ("asked", "release", "gpu", "reasons")
    found = {name: value for name, value in whole.items() if name not in left}
    found["why"] = server.why
    found["key"] = server.key
    found["runtime"] = {**plain(server.runtime), "decode_graphs": len(server.runtime.decode_graphs)}
    found["parallel"] = plain(server.parallel)
    found["backend"] = server.backend.name
    found["uncounted"] = plain(uncounted(server))
    found["behind deepep"] = runner_behind_deepep(server)
    if server.draft is not None:
        draft = server.as_draft()
        found["as draft"] = {
            name: plain(getattr(draft, name))
            for name in whole
            if name not in left and getattr(draft, name) != getattr(server, name)
        }
    return found


def _planned(deployment: Deployment) -> Answer:
    plan, page = make_plan(deployment, _HERE), io.StringIO()
    verdict = verdict_of(plan)
    show_plans(Output(stdout=page), [(plan, verdict)])
    better = advice(plan) if verdict.tunes == "nothing" or verdict.obstacle else None
    caches = {"target": plan.target, **({"draft": plan.draft} if plan.draft else {})}
    return {
        "shown": [line for line in page.getvalue().splitlines() if line.strip()],
        "verdict": verdict.to_json(),
        "exit": verdict.exit_code,
        "advice": better and str(better),
        "workers": plan.workers,
        "worker bytes": plan.worker_bytes,
        "modules": modules_of(
            deployment.server, deployment.shape.model, flashinfer_of(deployment.flashinfer_version)
        ),
        "paths": len(plan.paths),
        "not counted": deployment.not_counted,
        "serving gaps": serving_gaps(deployment),
        "obstacles": [*_obstacles(deployment)],
        "heads": [*undivided_heads(deployment.server.asked, deployment.inputs.checkpoint)],
        **{name: _cache(cache) for name, cache in caches.items()},
    }


def _cache(cache: CachePlan) -> Answer:
    """Of an op's keys the first and the last of each bucket's end."""
    whole = cache.to_json()
    ops = [{**op, "keys": [op["keys"][0], op["keys"][-1]], "of": len(op["keys"])} for op in whole.pop("ops")]
    files = whole.pop("files")
    ends = [*files[:3], *files[-2:]] if len(files) > 5 else files
    groups = [[len(group), *(group[:1])] for group in whole.pop("groups")]
    return {**whole, "files": ends, "count": len(files), "groups": groups[:4], "ops": ops}
