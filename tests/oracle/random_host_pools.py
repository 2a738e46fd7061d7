"""Random servers of any family with a cache of two tiers: what is in the host's memory and what is mapped and
held on the GPU for it by SGLang's code, beside ours.

python -m tests.oracle.random_host_pools --count 20 --seed 5 [--release 0.5.23] [--family llama] [--gpu H200]
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from dataclasses import replace
from typing import Any

from runtime.server.errors import ConfigError, NeverStarts, NoRoomForTokens
from runtime.server.host_pool import follows_host_cache, host_pool
from runtime.server.parallel import stage_layers
from runtime.server.pool_plan import FreeMemory, kv_dtype_of, plan_pool
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.errors import UsageError
from sgl_tune.keys.starts import never_starts
from tests.oracle.random_pools import Case, both_sides, cases_of, deployed, options_of

_FLAGS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("--hicache-ratio", (None, None, 0.4, 1.0, 1.3, 2.5, 7)),
    ("--hicache-size", (None, None, None, 1, 3, 9)),
    ("--hicache-mem-layout", (None, None, "layer_first", "page_first", "page_first_direct", "page_head")),
    ("--hicache-io-backend", (None, None, "kernel", "direct")),
    ("--hicache-write-policy", (None, None, "write_back", "write_through_selective")),
)
_TOLD = ("tokens", "page", "layout", "mapped", "held")


def main() -> None:
    asked = options_of("random_host_pools", __doc__ or "").parse_args()
    for release in asked.release or ("0.5.23",):
        dice = random.Random(f"{release} {asked.seed}")
        cases = [_tiered(dice, found) for found in cases_of(dice, asked, release) if found]
        _report(release, asked, cases)


def _tiered(dice: random.Random, case: Case) -> Case:
    argv = [word for word in case["argv"] if word != "--disable-radix-cache"]
    if "--disaggregation-mode" in argv:
        at = argv.index("--disaggregation-mode")
        del argv[at : at + 2]
    argv += ["--enable-hierarchical-cache"]
    for flag, values in _FLAGS:
        value = dice.choice(values)
        argv += [] if value is None else [flag, str(value)]
    return {**case, "argv": argv}


def _report(release: str, asked: argparse.Namespace, cases: list[Case]) -> None:
    ours, answers = both_sides("read_host_pools", release, asked, cases, _ours)
    said: Counter[str] = Counter()
    for at, case in enumerate(cases):
        verdict = _verdict(ours[at], answers.get(at))
        said[verdict.partition(":")[0]] += 1
        if verdict.startswith("refused"):
            print(f"  - {case['name']}: {verdict[:150]}")
        elif not verdict.startswith("equal"):
            print(f"  {case['name']} {' '.join(case['argv'])} rest {case['rest']}\n    {verdict}")
    print(release, asked.gpu, dict(said), flush=True)


def _ours(case: Case, gpu: str, release: str) -> Case:
    try:
        found = deployed(case, gpu, release)
        why = found.shape.unknown or never_starts(found)
        if found.shape.model is None or why:
            return {"refused": str(why)}
        if not follows_host_cache(found.model, found.server):
            return {"refused": "not followed"}
        return _pool(case, found)
    except (ConfigError, UsageError, NoRoomForTokens) as error:
        return {"refused": str(error)}


def _pool(case: Case, found: Deployment) -> Case:
    model, parallel, runtime = found.model, found.parallel, found.runtime
    layers, cache = stage_layers(model.num_layers, parallel, case["at"]), runtime.host_cache
    assert cache is not None
    told = {"stage": [layers[0], layers[-1] + 1], "dtype": kv_dtype_of(runtime)}
    free = FreeMemory(case["rest"], case["rest"])  # of a fraction that is all of it, beside images
    alone = replace(runtime, images_mib=0)
    plan = plan_pool(free, 1.0, model, parallel, alone, layers, 0, found.server.gpu.major)
    try:
        pool = host_pool(cache, plan, model, parallel, layers, runtime.release)
    except NeverStarts as error:
        return {**told, "ends": error.message}
    held = sum(size for _, size in pool.buffers())
    own = {"page": pool.page, "layout": cache.layout, "mapped": pool.bytes, "held": held}
    return {**told, "tokens": pool.tokens, **own}


def _verdict(ours: Case, theirs: Case | None) -> str:
    if theirs is None:
        return f"refused: {ours['refused']}"
    if "ends" in ours:
        return f"equal: {theirs['refused']}" if "refused" in theirs else f"different: {ours} {theirs}"
    if "refused" in theirs:
        return f"SGLang ends: {theirs['refused']} {theirs.get('where')}"
    wrong = [f"{name} {ours[name]} / {theirs[name]}" for name in _TOLD if ours[name] != theirs[name]]
    return f"different: {', '.join(wrong)} {theirs['class']}" if wrong else "equal"


if __name__ == "__main__":
    main()
