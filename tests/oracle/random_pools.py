"""Random servers of any family: tokens, requests and bytes of a stage's pools by SGLang's code, beside ours.

python -m tests.oracle.random_pools --count 20 --seed 5 [--release 0.5.23] [--family exaone4] [--gpu H200]
    [--drafts]
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from runtime.forward.kv_pool import make_kv_pool
from runtime.server.errors import ConfigError, NoRoomForTokens
from runtime.server.parallel import stage_layers
from runtime.server.pool_plan import FreeMemory, kv_dtype_of, plan_pool
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.errors import UsageError
from sgl_tune.keys.starts import never_starts
from tests.memory.checkpoints import checkpoints
from tests.oracle.held_random import _OWN, _UNKNOWN, _in_bfloat16
from tests.oracle.inside import run_inside
from tests.oracle.random_drafts import BLOCKS, DRAFTED, Pools, drafting, goes_with_drafts, unknown_draft
from tests.oracle.wheels import WORK, wheel_of
from tests.runtime.families import TINY, make_reference
from tests.runtime.families.reference import served_json
from tests.runtime.random_models import draw

_WANTS_ITS_OWN = ("with its own class beside config.json, answers", "does not know such a model")
META = torch.device("meta")
_GIB = 1 << 30
Case = dict[str, Any]
_FLAGS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("--page-size", (None, None, 1, 16, 64, 128)),
    ("--kv-cache-dtype", (None, None, "fp8_e4m3", "fp8_e5m2", "bfloat16")),
    ("--max-running-requests", (None, None, 1, 7, 48, 1024, 20000)),
    ("--max-total-tokens", (None, None, None, 700, 100_001)),
    ("--context-length", (None, None, None, 96)),
    ("--swa-full-tokens-ratio", (None, None, 0.02, 0.35, 1.0)),
    ("--mamba-full-memory-ratio", (None, None, 0.3, 2.0)),
    ("--max-mamba-cache-size", (None, None, None, 100)),
    ("--mamba-ssm-dtype", (None, None, "bfloat16", "float32")),
    ("--mamba-radix-cache-strategy", (None, None, "no_buffer", "extra_buffer")),
    ("--chunked-prefill-size", (None, None, -1, 3072)),
    ("--disaggregation-mode", (None, None, None, "prefill", "decode")),
    ("--attention-backend", (None, None, None, "triton", "flashinfer", "fa3")),
)
_SETTLED = ("dtype", "stage", "draft_dtype", "most", "draft_most")
_SWITCHES = ("--disable-radix-cache", "--disable-overlap-schedule", "--enable-mixed-chunk")
_LAYOUTS = ((1, 1, 1), (1, 1, 1), (2, 1, 1), (4, 1, 1), (8, 1, 1), (4, 2, 1), (8, 8, 1), (1, 1, 2), (2, 1, 3))


def main() -> None:
    asked = options_of("random_pools", __doc__ or "").parse_args()
    for release in asked.release or ("0.5.23",):
        dice = random.Random(f"{release} {asked.seed}")
        cases = [found for found in cases_of(dice, asked, release) if found]
        _report(release, asked, cases)


def options_of(program: str, about: str) -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog=f"python -m tests.oracle.{program}", description=about[:60])
    options.add_argument("--family", action="append")
    options.add_argument("--model", action="append", help="a published one")
    options.add_argument("--count", type=int, default=10)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--release", action="append")
    options.add_argument("--gpu", default="H200")
    options.add_argument("--drafts", action="store_true", help="beside a draft, which is asked, too")
    options.add_argument("--algorithm", help="of the drafts, where it is to be one")
    options.add_argument("--server", default="", help="what each server is told beside")
    options.add_argument("--work", type=Path, default=WORK, help="where the wheels are kept")
    return options


def cases_of(dice: random.Random, asked: argparse.Namespace, release: str) -> Iterator[Case]:
    named = [one for one in checkpoints() if asked.model is None or one.name in asked.model]
    if asked.drafts and not asked.model:
        named = [one for one in named if goes_with_drafts(one.name, one.config, release)]
    known = asked.family or list(DRAFTED if asked.drafts else TINY)
    for _ in range(asked.count):
        if asked.model or (asked.family is None and dice.random() < 0.5):
            one = dice.choice(named)
            name, config = one.name, one.config
        else:
            name = dice.choice(known)
            try:
                drawn = {} if asked.drafts and dice.random() < 0.6 else draw(name, dice)
                config = _in_bfloat16(served_json(make_reference(name, **drawn)))
            except Exception:
                continue
        case = {"name": name, "config": config, **_server(dice, asked, release)}
        if asked.drafts:
            groups = int(case["argv"][3]) if "--dp-size" in case["argv"] else 1
            told = drafting(dice, config, release, groups, asked.algorithm)
            case |= {**told, "argv": [*case["argv"], *told["argv"]]}
        yield case


def _server(dice: random.Random, asked: argparse.Namespace, release: str) -> Case:
    layouts = _LAYOUTS[:-2] if asked.drafts else _LAYOUTS
    alone = asked.algorithm in BLOCKS  # which go with no groups
    tp, dp, pp = dice.choice([one for one in layouts if one[1] == 1 or not alone])
    argv = ["--tp-size", str(tp)]
    argv += ["--dp-size", str(dp), "--enable-dp-attention"] if dp > 1 else []
    argv += ["--pp-size", str(pp)] if pp > 1 else []
    for flag, values in _FLAGS:
        rare = asked.drafts and flag.startswith("--mamba-radix")
        value = dice.choice(values) if dice.random() < (0.1 if rare else 0.4) else None
        if flag.startswith("--mamba-radix") and release < "0.5.14":
            flag = "--mamba-scheduler-strategy"
        argv += [] if value is None else [flag, str(value)]
    argv += [flag for flag in _SWITCHES if dice.random() < 0.15]
    argv += asked.server.split()
    rest = dice.choice((1, 4, 20, 61)) * _GIB + dice.randrange(_GIB)
    return {"argv": argv, "rest": rest, "at": dice.randrange(pp)}


def _report(release: str, asked: argparse.Namespace, cases: list[Case]) -> None:
    program = "read_draft_pools" if asked.drafts else "read_any_pools"
    ours, answers = both_sides(program, release, asked, cases, _ours)
    said: Counter[str] = Counter()
    for at, case in enumerate(cases):
        verdict = _verdict(ours[at], answers.get(at))
        said[verdict.partition(":")[0]] += 1
        _tell(case, ours[at], verdict)
    print(release, dict(said), flush=True)


def _tell(case: Case, own: Case, verdict: str) -> None:
    if verdict.startswith("refused"):
        print(f"  - {case['name']}: {verdict[:150]}")
    elif not verdict.startswith("equal"):
        print(
            f"  {case['name']} {' '.join(case['argv'])} stage {case['at']} rest {case['rest']}\n    {verdict}"
        )
        print(f"    {own.get('not counted')}")
        if case["name"] in TINY and verdict.startswith("diff"):
            print(f"    {json.dumps(case['config'])}")
        if case.get("draft"):
            print(f"    {json.dumps(case['draft'])}")


def both_sides(
    program: str,
    release: str,
    asked: argparse.Namespace,
    cases: list[Case],
    ours_of: Callable[[Case, str, str], Case],
) -> tuple[list[Case], dict[int, Case]]:
    """What we make of each case, and SGLang, which is asked again where it takes a file for transformers' own
    code, and knows none of the family, or ends by it."""
    ours = [ours_of(case, asked.gpu, release) for case in cases]

    def asked_of(these: Iterable[int]) -> dict[int, Case]:
        wanted = [at for at in these if "refused" not in ours[at]]
        return answers_of(program, release, asked, cases, ours, wanted)

    answers = asked_of(range(len(cases)))
    foreign = [at for at, told in answers.items() if _UNKNOWN in told.get("refused", "")]
    foreign += [at for at, own in enumerate(ours) if own.get("refused", "").endswith(_WANTS_ITS_OWN)]
    for at in foreign:
        cases[at] = {**cases[at], "config": {**_OWN, **cases[at]["config"]}}
        ours[at] = ours_of(cases[at], asked.gpu, release)
    return ours, answers | asked_of(foreign)


def answers_of(
    program: str,
    release: str,
    asked: argparse.Namespace,
    cases: list[Case],
    ours: list[Case],
    wanted: list[int],
) -> dict[int, Case]:
    """Of those that are wanted, each asked with what we settled for it."""
    lines = []
    for at in wanted:
        told = {name: cases[at].get(name) for name in ("config", "argv", "rest", "draft")}
        lines.append(json.dumps({**told, **{name: ours[at].get(name) for name in _SETTLED}}))
    work = asked.work.absolute()
    answers = run_inside(program, wheel_of(release, work), asked.gpu, work, lines, 3600)
    return dict(zip(wanted, answers, strict=True))


def _ours(case: Case, gpu: str, release: str) -> Case:
    try:
        found = deployed(case, gpu, release)
        why = found.shape.unknown or never_starts(found) or unknown_draft(found)
        if found.shape.model is None or why:
            return {"refused": str(why)}
        return _pools(case, found)
    except (ConfigError, UsageError, NoRoomForTokens) as error:
        return {"refused": str(error)}


def deployed(case: Case, gpu: str, release: str) -> Deployment:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(case["config"]))
        (draft := Path(folder, "draft")).mkdir()
        (draft / "config.json").write_text(json.dumps(case.get("draft") or {}))
        argv = [str(draft) if word == "DRAFT" else word for word in case["argv"]]
        command = ["python", "-m", "sglang.launch_server", "--model-path", folder, *argv]
        command += ["--trust-remote-code"] if "auto_map" in case["config"] else []
        return select_deployments(ServerFlags(gpu=gpu, sglang_version=release), command=command)[0]


def _pools(case: Case, found: Deployment) -> Case:
    model, parallel = found.model, found.parallel
    layers = stage_layers(model.num_layers, parallel, case["at"])
    told = {"stage": [layers[0], layers[-1] + 1], "dtype": kv_dtype_of(found.runtime)}
    told["not counted"] = found.not_counted
    runtime = replace(found.runtime, images_mib=0)  # of what is left beside images
    free = FreeMemory(case["rest"], case["rest"])  # of a fraction that is all of it
    major, pools = found.server.gpu.major, Pools(found, case["at"] == parallel.pp - 1)
    try:
        told_beside = {"beside": pools.beside}
        plan = plan_pool(free, 1.0, model, parallel, runtime, layers, pools.counted, major, **told_beside)
    except NoRoomForTokens as error:
        return {**told, "no room": str(error)}
    if plan.compressed is not None:
        return {"refused": "compressed keys have pools of their own"}
    pool = make_kv_pool(plan, model, parallel, layers, META)
    states = 0 if pool.states is None else sum(one.nbytes for one in pool.states.held())
    kept, indices = _sizes([pool.cache, pool.slots])
    pools.plan, pools.kv = plan, pool
    if found.server.speculative is not None:
        told |= {"draft_dtype": pools.draft_dtype, "draft": _sizes(pools.of_drafts())[0]}
    return {
        **told,
        "page": plan.page_size,
        "backends": [found.server.prefill_attention_backend, found.server.decode_attention_backend],
        "tokens": plan.tokens,
        "window": plan.sliding_tokens,
        "requests": plan.max_running_requests,
        "table": list(pool.requests.table.shape),
        "kept": kept,
        "indices": indices,
        "states": states,
    }


def _sizes(held: Any) -> tuple[int, int]:
    """Bytes of values, and of what tells where they are."""
    found = [0, 0]
    for one in {id(one): one for one in _tensors(held)}.values():
        found[one.dtype in (torch.int64, torch.int32)] += one.nbytes
    return found[0], found[1]


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict | list | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _tensors(one)
    elif type(value).__module__.startswith("runtime.forward") and hasattr(value, "__dict__"):
        yield from _tensors(vars(value))


def _verdict(ours: Case, theirs: Case | None) -> str:
    if theirs is None:
        return f"refused: {ours['refused']}"
    if "no room" in ours:
        return "equal: no room" if "refused" in theirs else f"different: no room {ours['no room']} / {theirs}"
    if "refused" in theirs:
        return f"SGLang ends: {theirs['refused']} {theirs.get('where')}"
    wrong = [
        f"{name} {ours[name]} / {theirs[name]}"
        for name in ("page", "backends", "tokens", "window", "requests", "table", "kept", "states", "draft")
        if not _is_alike(ours.get(name, 0), theirs.get(name, 0), name)
    ]
    return f"different: {', '.join(wrong)} {theirs['classes']}" if wrong else "equal"


def _is_alike(ours: Any, theirs: Any, name: str) -> bool:
    """Pointers to layers' buffers, which SGLang keeps on the GPU, are few."""
    if name in ("kept", "states", "draft"):
        return bool(abs(ours - theirs) <= 64 * 1024)
    if name == "window" and ours == 0:  # of a pool that is all of it
        return True
    return bool(ours == theirs)


if __name__ == "__main__":
    main()
