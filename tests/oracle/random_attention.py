"""Random servers of any family: what attention holds beside the pools by SGLang's code, beside ours.

python -m tests.oracle.random_attention --count 20 --seed 5 [--release 0.5.23] [--family deepseek_v3]
    [--gpu H200] [--drafts]

Bytes that are made with the backends and for decode graphs, of a target and of its draft; and how many of
FlashInfer's wrappers are made with the backends: those of graphs come with the captures.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

import torch

from runtime.server.attention_buffers import WRAPPER
from runtime.server.drafting_attention import catches_up_in_graphs
from runtime.server.errors import ConfigError, NoRoomForTokens
from runtime.server.parallel import stage_layers
from runtime.server.pool_plan import FreeMemory, kv_dtype_of, plan_pool
from runtime.server.start_sizes import captured_sizes, start_sizes
from runtime.start.sglang_buffers import DraftAttention, SglangBuffers
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.errors import UsageError
from sgl_tune.keys.starts import never_starts
from tests.oracle.random_drafts import Pools, unknown_draft
from tests.oracle.random_pools import Case, both_sides, cases_of, deployed, options_of

_ROW = 160  # bytes of what SGLang keeps of each row beside, which ours leaves out
_ROWS_OF_REQUESTS = 8  # of requests that have no row of a graph it keeps so much less
_SMALL = 96 * 1024


def main() -> None:
    asked = options_of("random_attention", __doc__ or "").parse_args()
    for release in asked.release or ("0.5.23",):
        dice = random.Random(f"{release} {asked.seed}")
        cases = [found for found in cases_of(dice, asked, release) if found]
        _report(release, asked, cases)


def _report(release: str, asked: argparse.Namespace, cases: list[Case]) -> None:
    ours, answers = both_sides("read_attention", release, asked, cases, _ours)
    said: Counter[str] = Counter()
    for at, case in enumerate(cases):
        verdict = _verdict(ours[at], answers.get(at))
        said[verdict.partition(":")[0]] += 1
        if verdict.startswith("refused"):
            print(f"  - {case['name']}: {verdict[:150]}")
        elif verdict != "equal":
            print(f"  {case['name']} {' '.join(case['argv'])} rest {case['rest']}\n    {verdict}")
            print(f"    {ours[at].get('kinds')} {answers.get(at)}")
    print(release, asked.gpu, dict(said), flush=True)


def _ours(case: Case, gpu: str, release: str) -> Case:
    try:
        found = deployed(case, gpu, release)
        why = found.shape.unknown or never_starts(found) or unknown_draft(found)
        if found.shape.model is None or why:
            return {"refused": str(why)}
        if found.model.obstacles:
            return {"refused": found.model.obstacles[0]}
        if not found.model.attention or found.model.compressed is not None:
            return {"refused": "no attention, or keys in groups"}
        return _held(case, found)
    except (ConfigError, UsageError, NoRoomForTokens) as error:
        return {"refused": str(error)}


def _held(case: Case, found: Deployment) -> Case:
    model, parallel, runtime = found.model, found.parallel, found.runtime
    if parallel.pp > 1:
        return {"refused": "on one stage alone"}
    layers = stage_layers(model.num_layers, parallel, 0)
    pools, major = Pools(found, True), found.server.gpu.major
    free = FreeMemory(case["rest"], case["rest"])
    plan = plan_pool(free, 1.0, model, parallel, pools.runtime, layers, pools.counted, major)
    sizes = captured_sizes(plan.max_running_requests, parallel, runtime)
    if not sizes:
        return {"refused": "no decode graphs"}
    device: Any = SimpleNamespace(torch_device=torch.device("meta"), sm_major=major, label=lambda *_: None)
    buffers = SglangBuffers(model, parallel, runtime, start_sizes(model, runtime, 1), plan, device)
    buffers.init_attention_backend()
    shown: dict[str, Any] = {}
    told: Case = {"most": max(sizes), "stage": [layers[0], layers[-1] + 1], "dtype": kv_dtype_of(runtime)}
    told["rows"] = max(sizes) + plan.max_running_requests // _ROWS_OF_REQUESTS
    told |= {"kinds": found.server.drafting_backends, "made": _new(buffers, shown)}
    told["wrappers"] = _wrappers(buffers, "flashinfer_wrappers")
    buffers.init_decode_graphs(sizes)
    told["graphs"] = _new(buffers, shown)
    if found.server.speculative is None:
        return told
    pools.plan, told["steps"] = plan, found.server.speculative.steps or 1
    pools.load_drafts()
    told["draft_dtype"] = pools.draft_dtype
    attention = pools.draft_attention
    if attention is not None:
        drafts = captured_sizes(plan.max_running_requests, parallel, runtime, drafts=True)
        if not drafts:
            return {"refused": "no graphs of drafts"}
        told["draft_most"] = max(drafts)
        buffers.init_draft_backend(attention)
        told["draft made"] = _new(buffers, shown)
        told["draft wrappers"] = _wrappers(buffers, "draft_wrappers", "draft's flashinfer_wrappers")
        buffers.init_draft_graphs(attention, drafts)
        told["catches up"] = _catches_up(found, attention)
        told["draft graphs"] = _new(buffers, shown)
    elif pools.drafts:
        return {"refused": f"what attention holds for its draft: {found.server.drafting_backends}"}
    return told


def _catches_up(found: Deployment, attention: DraftAttention) -> bool:
    """In graphs: SGLang's runner of them is asked elsewhere."""
    speculative, latent = found.runtime.speculative, attention.model.mla is not None
    return speculative is not None and catches_up_in_graphs(speculative, found.runtime.release, latent)


def _new(buffers: SglangBuffers, shown: dict[str, Any]) -> dict[str, int]:
    """What attention holds that it did not."""
    found = {
        name: held.numel() * held.element_size()
        for name, held in buffers.held.items()
        if name not in shown and not name.startswith(_OTHERS) and "wrappers" not in name
    }
    shown.update(buffers.held)
    return found


def _wrappers(buffers: SglangBuffers, *names: str) -> int:
    return sum(held.numel() for told, held in buffers.held.items() if told.endswith(names)) // WRAPPER


_OTHERS = ("states of requests", "free states", "decode input_embeds", "decode custom_mask")


def _verdict(ours: Case, theirs: Case | None) -> str:
    if theirs is None:
        return f"refused: {ours['refused']}"
    if "refused" in theirs:
        return f"SGLang ends: {theirs['refused']} {theirs.get('where')}"
    pairs = [(name, ours.get(name, {}), theirs.get(name, 0)) for name in ("made", "graphs", "draft made")]
    both = theirs.get("steps", 0) + (theirs.get("catching up", 0) if ours.get("catches up") else 0)
    pairs.append(("draft graphs", ours.get("draft graphs", {}), both))
    wrong = [
        f"{name} {sum(own.values())} {own} / {asked}"
        for name, own, asked in pairs
        if not _is_alike(
            sum(own.values()), asked, ours["rows"], ours.get("steps", 1) if "draft" in name else 1
        )
    ]
    wrong += [
        f"{name} {ours.get(name, 0)} / {theirs.get(name, 0)}"
        for name in ("wrappers", "draft wrappers")
        if ours.get(name, 0) != theirs.get(name, 0)
    ]
    return f"different: {'; '.join(wrong)}" if wrong else "equal"


def _is_alike(ours: int, theirs: int, rows: int, made: int) -> bool:
    """`made`: as many backends."""
    return abs(ours - theirs) <= made * (_SMALL + _ROW * rows)


if __name__ == "__main__":
    main()
