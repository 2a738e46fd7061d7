"""Random models whose weights lie in the host's memory in part: what each layer gives up to SGLang's own
offloader, beside ours.

python -m tests.oracle.random_offloaded --count 5 --seed 5 [--release 0.5.23] [--family llama] [--place 2/2/1]
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from runtime.server.errors import ConfigError
from runtime.server.offloading import follows_offloading
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.errors import UsageError
from sgl_tune.keys.starts import never_starts
from tests.memory.offloaded import given_up
from tests.oracle.held import sizes_of
from tests.oracle.held_random import _OWN, _UNKNOWN, _in_bfloat16
from tests.oracle.inside import run_inside
from tests.oracle.wheels import WORK, wheel_of
from tests.runtime.families import TINY, make_reference
from tests.runtime.families.reference import served_json
from tests.runtime.random_models import draw

Case = dict[str, Any]


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.oracle.random_offloaded", description=__doc__)
    options.add_argument("--family", action="append")
    options.add_argument("--count", type=int, default=5)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--release", action="append")
    options.add_argument("--place", default="1", help="tp, or tp/ep/dp: its last rank")
    options.add_argument("--stage", default="0/1", help="which one, and of how many")
    options.add_argument("--work", type=Path, default=WORK, help="where the wheels are kept")
    asked = options.parse_args()
    for release in asked.release or ("0.5.23",):
        _report(release, asked)


def _report(release: str, asked: argparse.Namespace) -> None:
    cases = [one for family in asked.family or TINY for one in _cases(family, release, asked)]
    ours = [_ours(case, release, asked) for case in cases]
    wanted = [at for at, said in enumerate(ours) if isinstance(said, dict)]
    theirs = dict(zip(wanted, _asked([cases[at] for at in wanted], release, asked), strict=True))
    said: Counter[tuple[str, str]] = Counter()
    for at, case in enumerate(cases):
        verdict = _verdict(ours[at], theirs.get(at))
        said[case["family"], verdict] += 1
        if verdict.startswith("different"):
            print(json.dumps(case["config"]), case["budget"])
    for (family, verdict), times in said.items():
        print(f"  {times} x {family}: {verdict[:300]}")
    kinds = Counter(one.partition(":")[0] for _, one in said.elements())
    print(release, asked.place, asked.stage, dict(kinds), flush=True)


def _cases(family: str, release: str, asked: argparse.Namespace) -> list[Case]:
    dice, made = random.Random(f"{family} {release} {asked.seed}"), []
    for _ in range(asked.count):
        try:
            model = make_reference(family, **draw(family, dice))
            told = _in_bfloat16(served_json(model))
        except Exception:  # what transformers refuses
            continue
        size = sum(one.numel() for one in model.parameters()) * 2
        budget = dice.choice((1, dice.randint(1, size), dice.randint(1, size // 3), 1 << 40))
        made.append({"family": family, "config": told, "budget": budget})
    return made


def _ours(case: Case, release: str, asked: argparse.Namespace) -> Case | str:
    """Sizes that each layer gives up, and bytes that stay; or why nothing is said."""
    try:
        return _held(case, _deployed(case, release, asked), asked)
    except (ConfigError, UsageError) as error:
        return str(error)


def _deployed(case: Case, release: str, asked: argparse.Namespace) -> Deployment:
    tp, ep, dp = sizes_of(asked.place)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(case["config"]))
        command = ["python", "-m", "sglang.launch_server", "--model-path", folder, "--tp", str(tp)]
        command += ["--ep", str(ep)] if ep > 1 else []
        command += ["--dp", str(dp), "--enable-dp-attention"] if dp > 1 else []
        command += ["--cpu-offload-gb", "1", *_pipeline(asked)]
        command += ["--trust-remote-code"] if "auto_map" in case["config"] else []
        flags = ServerFlags(gpu="H200", sglang_version=release)
        return select_deployments(flags, command=command)[0]


def _held(case: Case, found: Deployment, asked: argparse.Namespace) -> Case | str:
    model, why = found.shape.model, found.shape.unknown or never_starts(found)
    if model is None or why or model.obstacles:
        return str(why or (model and model.obstacles[0]))
    if not follows_offloading(model, found.server):
        return "not followed"
    layers, held = given_up(found, int(asked.stage.split("/")[0]), case["budget"])
    return {"layers": layers, "held": held}


def _pipeline(asked: argparse.Namespace) -> list[str]:
    stages = asked.stage.split("/")[1]
    return ["--pp-size", stages] if stages != "1" else []


def _asked(cases: list[Case], release: str, asked: argparse.Namespace) -> list[Any]:
    """Of files that transformers has no code of, once more with a class of their own."""
    answers = _answers(cases, release, asked) if cases else []
    foreign = [at for at, one in enumerate(answers) if _UNKNOWN in str(one)]
    if foreign:
        again = [{**cases[at], "config": {**_OWN, **cases[at]["config"]}} for at in foreign]
        for at, answer in zip(foreign, _answers(again, release, asked), strict=True):
            answers[at] = answer
    return answers


def _answers(cases: list[Case], release: str, asked: argparse.Namespace) -> list[Any]:
    tp, ep, dp = sizes_of(asked.place)
    at, of = map(int, asked.stage.split("/"))
    place: Case = {"tp": tp, "ep": ep, "dp": dp, "rank": tp - 1, "fused": "/" in asked.place}
    place |= {"stage": [of, at], "argv": _pipeline(asked)}
    lines = [json.dumps({"config": one["config"], "budget": one["budget"], **place}) for one in cases]
    work = asked.work.absolute()
    return list(run_inside("read_offloaded", wheel_of(release, work), "H200", work, lines, 1800))


def _verdict(ours: Case | str, theirs: Any) -> str:
    if isinstance(ours, str):
        return f"refused: {ours}"
    if isinstance(theirs, str):
        return f"SGLang ends: {theirs}"
    if theirs["aliases"]:
        return f"different: SGLang keeps {theirs['aliases']} by another way"
    gone = [[size for _, size in layer if size] for layer in theirs["layers"]]
    if [one for one in gone if one] != ours["layers"]:
        return f"different: {ours['layers']} of ours, {theirs['layers']}"
    if ours["held"] != theirs["held"]:
        return f"different: {ours['held'] - theirs['held']} bytes more stay"
    return "equal" if ours["layers"] else "equal: nothing is taken"


if __name__ == "__main__":
    main()
