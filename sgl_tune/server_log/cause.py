"""Why a server ran out of memory, or used less than it has, as its own log shows it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sgl_tune.server_log.rank_log import Cause, LoggedOom, RankLog, ServerLog
from sgl_tune.units import memory_bytes

OCCUPIED = "another process holds part of the GPU"
_OTHERS = 1 << 30
_CONTEXT = 5 << 30  # the most that a server holds before its weights: its context, NCCL's buffers
_BALANCED = 0.9  # SGLang's own bound
_RETURNED = 1 << 30
GRAPHS = ("prefill graphs", "decode graphs", "draft graphs")
_DRAFTS = re.compile(r"speculative_algorithm'?[=:] ?'")
_FRACTION = re.compile(r"mem[_-]fraction[_-]static'?[=:] ?(0?\.\d{1,9})")


@dataclass(frozen=True, slots=True)
class _Asking:
    """Of whose last allocation an innermost frame tells, by its file and function."""

    frame: re.Pattern[str]
    what: str
    way_out: str


_ASKING = (
    _Asking(
        re.compile(r"logits_processor\.py|logprob|\b_get_logits\b"),
        "a matrix of logits, rows by vocabulary",
        "fewer rows: lower --max-running-requests or --chunked-prefill-size, or ask for fewer logprobs; "
        "else lower --mem-fraction-static",
    ),
    _Asking(
        re.compile(r"indexer|mqa_logits"),
        "the sparse indexer's scores, a chunk's tokens by the context",
        "lower --chunked-prefill-size or --context-length: the fraction does not count them",
    ),
    _Asking(
        re.compile(r"symmetric_memory|symm_mem|pynccl_allocator"),
        "the symmetric memory pool, which is taken after the KV pool",
        "lower --mem-fraction-static, or SGLANG_SYMM_MEM_PREALLOC_GB_SIZE",
    ),
    _Asking(
        re.compile(r"\bNCCL\b|\bnccl"),
        "NCCL's buffers, made at a communicator's first use, after the KV pool",
        "lower --mem-fraction-static",
    ),
    _Asking(
        re.compile(r"deep_?ep|nvshmem", re.IGNORECASE),
        "DeepEP's buffers, made at the first dispatch, after the KV pool",
        "lower --mem-fraction-static or SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK",
    ),
    _Asking(
        re.compile(r"process_weights_after_loading|repack|shuffle_weight"),
        "weights laid out anew after loading, beside the ones that were loaded",
        "more ranks (--tp), or a format that its kernels read as it is",
    ),
    _Asking(
        re.compile(
            r"init_memory_pool|memory_pool\.py|kv_cache_configurator|_create_buffers|alloc_memory_pool"
        ),
        "the KV pool itself",
        "lower --mem-fraction-static or --max-total-tokens",
    ),
)


def cause_of(log: ServerLog) -> Cause | None:
    """None where the log shows nothing amiss."""
    rules: tuple[Callable[[ServerLog], Iterator[Cause]], ...] = (
        _occupied,
        _refused,
        _fragmented,
        _asked,
        _ran_out,
        _given_back,
    )
    return next((cause for rule in rules for cause in rule(log)), None)


def fraction_of(log: ServerLog) -> float | None:
    found = _FRACTION.search(log.server_args or "") or _FRACTION.search(log.refusal)
    return float(found[1]) if found else None


def _occupied(log: ServerLog) -> Iterator[Cause]:
    """Somebody else is on the GPU: torch says so, or this rank had less than its peers before the weights."""
    what = OCCUPIED
    way_out = "end the other process, or lower --mem-fraction-static by its share"
    oom = log.oom
    if oom is not None and (oom.others_bytes or 0) > _OTHERS:
        yield Cause(what, f"{memory_bytes(oom.others_bytes or 0)} that are not this server's", way_out)
    taken = _before_weights(log)
    if taken is not None and taken > _CONTEXT and oom and oom.numbers:
        total = memory_bytes(oom.numbers.total_bytes)
        yield Cause(what, f"{memory_bytes(taken)} of {total} were taken before the weights", way_out)
    most = max((rank.baseline_bytes or 0 for rank in _peers(log)), default=0)
    baseline = log.lead.baseline_bytes
    if log.ended_by_memory and baseline is not None and baseline < _BALANCED * most:
        yield Cause(
            what,
            f"{log.lead.name} had {memory_bytes(baseline)} free before its weights, where another rank "
            f"had {memory_bytes(most)}",
            way_out,
        )
    if "capacity is unbalanced" in log.refusal:
        yield Cause(what, "SGLang found less on one GPU than on the others before the weights", way_out)


def _refused(log: ServerLog) -> Iterator[Cause]:
    """SGLang itself ended the start: nothing of the fraction is left for the KV cache."""
    if not log.refusal:
        return
    lead, fraction = log.lead, fraction_of(log)
    loaded = [step for step in lead.steps if step.phase in ("weights", "draft weights")]
    free = loaded[-1].free_bytes if loaded else None
    way_out = "raise --mem-fraction-static, or spread the weights over more ranks (--tp)"
    if free is None or not lead.baseline_bytes:
        yield Cause("weights leave nothing of the fraction for the KV cache", "SGLang's own words", way_out)
        return
    least = 1 - free / lead.baseline_bytes
    taken = f"{memory_bytes(lead.baseline_bytes - free)} of {memory_bytes(lead.baseline_bytes)} are weights"
    if len(loaded) > 1 and loaded[-1].used_bytes:
        taken += f", {memory_bytes(loaded[-1].used_bytes)} of them the draft's"
    given = f", and --mem-fraction-static is {fraction:g}" if fraction else ""
    way_out = f"raise --mem-fraction-static beyond {least:.4f}, or spread the weights over more ranks (--tp)"
    yield Cause("weights leave nothing of the fraction for the KV cache", taken + given, way_out)


def _fragmented(log: ServerLog) -> Iterator[Cause]:
    numbers = log.oom.numbers if log.oom else None
    if numbers and numbers.reserved_unallocated_bytes >= numbers.tried_bytes:
        reserved, tried = map(memory_bytes, (numbers.reserved_unallocated_bytes, numbers.tried_bytes))
        yield Cause(
            "fragmented memory",
            f"torch held {reserved} in pieces, none of which had room for the {tried} it tried",
            "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        )


def _asked(log: ServerLog) -> Iterator[Cause]:
    """The traceback names the allocation."""
    oom = log.oom
    if oom is None:
        return
    for words in (oom.message, *(" ".join(frame) for frame in reversed(oom.frames))):
        for asking in _ASKING:
            if asking.frame.search(words):
                yield Cause(asking.what, f"{_tried(oom)}, in {_phase(oom.phase)}", asking.way_out)


def _ran_out(log: ServerLog) -> Iterator[Cause]:
    """By the phase in which memory ended."""
    oom = log.oom
    if oom is None:
        return
    pool = _pool(log)
    if oom.phase == "setup":
        yield Cause(
            "memory ended in a phase that the log does not show", _tried(oom), "lower --mem-fraction-static"
        )
    elif oom.phase in ("communicator", "weights", "draft weights"):
        whose = "the draft's weights do" if oom.phase == "draft weights" else "the weights do"
        yield Cause(
            f"{whose} not fit",
            _tried(oom),
            "spread them over more ranks (--tp, --pp), or take a smaller or quantized checkpoint",
        )
    elif oom.phase == "kv pool":
        yield Cause("the KV pool itself", _tried(oom), "lower --mem-fraction-static or --max-total-tokens")
    elif oom.phase in GRAPHS or oom.phase.removeprefix("after ") in GRAPHS:
        yield Cause(
            f"the KV pool leaves too little for the {oom.phase.removeprefix('after ')}",
            ", ".join(filter(None, (pool, _capture(log.lead), _tried(oom)))),
            f"lower --mem-fraction-static, or capture less ({_LESS[oom.phase.removeprefix('after ')]})",
        )
    elif oom.phase == "ready":
        yield Cause(
            "activations of a batch, which the fraction does not count",
            ", ".join(filter(None, (_ready(log.lead), _tried(oom)))),
            "lower --chunked-prefill-size, --max-running-requests or --mem-fraction-static",
        )
    elif oom.phase == "autotune":
        yield Cause(
            "the KV pool leaves too little for the autotune dummy run",
            ", ".join(filter(None, (pool, _tried(oom)))),
            "lower --mem-fraction-static or --max-running-requests",
        )
    else:
        yield Cause(
            "the KV pool leaves too little for what comes after it",
            ", ".join(filter(None, (pool, _tried(oom)))),
            "lower --mem-fraction-static",
        )


_LESS = {
    "prefill graphs": "--cuda-graph-max-bs-prefill, --disable-prefill-cuda-graph",
    "decode graphs": "--cuda-graph-max-bs",
    "draft graphs": "--cuda-graph-max-bs",
}


def _given_back(log: ServerLog) -> Iterator[Cause]:
    """Memory came back after the pool was sized, so the pool is smaller than it could be."""
    if log.ended:
        return
    lead = log.lead
    pool, after = lead.free_after("kv pool"), [step for step in lead.steps if step.phase in GRAPHS]
    begun = next((step.before_bytes for step in after if step.before_bytes is not None), None)
    if pool is not None and begun is not None and begun - pool > _RETURNED:
        drafts = lead.step("draft weights") is not None or _DRAFTS.search(log.server_args or "")
        whose = "the draft's own embedding and head" if drafts else "what the loader still held"
        yield Cause(
            f"the pool was sized before {whose} went",
            f"{memory_bytes(begun - pool)} came back between the KV pool and the first capture",
            "raise --mem-fraction-static by that share",
        )
    fraction, ready = fraction_of(log), lead.free_after("ready")
    if fraction is None or ready is None or not lead.baseline_bytes:
        return
    slack = round((1 - fraction) * lead.baseline_bytes)
    if ready - slack > _RETURNED:
        yield Cause(
            "the pool was sized while memory was still taken that was given back later",
            f"{memory_bytes(ready)} are free at ready, where the fraction keeps {memory_bytes(slack)}",
            "raise --mem-fraction-static, or set --max-total-tokens",
        )


def _peers(log: ServerLog) -> list[RankLog]:
    return [rank for rank in log.ranks if rank.source not in log.others]


def _before_weights(log: ServerLog) -> int | None:
    total = log.oom.numbers.total_bytes if log.oom and log.oom.numbers else 0
    baseline = log.lead.baseline_bytes
    return total - baseline if total and baseline is not None else None


def _pool(log: ServerLog) -> str:
    free, fraction = log.lead.free_after("kv pool"), fraction_of(log)
    if free is None:
        return f"--mem-fraction-static is {fraction:g}" if fraction else ""
    return f"{memory_bytes(free)} were left after it" + (f" at {fraction:g}" if fraction else "")


def _capture(rank: RankLog) -> str:
    if rank.capture is None:
        return ""
    at = f" at {rank.capture.shape}" if rank.capture.shape else ""
    return f"{memory_bytes(rank.capture.free_bytes)}{at}"


def _ready(rank: RankLog) -> str:
    free = rank.free_after("ready")
    return f"{memory_bytes(free)} were free when it was ready" if free is not None else ""


def _tried(oom: LoggedOom) -> str:
    if oom.numbers is None:
        return "the message has no numbers"
    free = f", {memory_bytes(oom.numbers.free_bytes)} free" if oom.numbers.total_bytes else ""
    return f"{memory_bytes(oom.numbers.tried_bytes)} tried{free}"


def _phase(phase: str) -> str:
    return {"ready": "serving", "setup": "a phase that the log does not show"}.get(phase, phase)


def missing_of(log: ServerLog) -> tuple[str, ...]:
    """What a log lacks that would tell more."""
    oom, lead = log.oom, log.lead
    wanted = {
        "no 'Load weight begin' line: what others held is not known": lead.baseline_bytes is None,
        "no 'Memory pool end' line: what the pool left is not known": oom is not None
        and oom.phase not in ("communicator", "weights", "draft weights")
        and lead.free_after("kv pool") is None,
        "no message of torch with numbers": oom is not None and oom.numbers is None,
        "no traceback: which allocation it was is not known": oom is not None and not oom.frames,
        "no server_args= line: the fraction is not known": log.server_args is None,
    }
    return tuple(what for what, lacks in wanted.items() if lacks)
