"""Find in a server's log why it ran out of memory, or used less memory than it has."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sgl_tune.server_log.ends import EITHER_GRAPHS, Death
from sgl_tune.server_log.log import ServerLog
from sgl_tune.server_log.marks import GRAPHS
from sgl_tune.units import memory_bytes

_OTHERS = 1 << 30
_CONTEXT = 5 << 30  # the most before the weights: the context and NCCL's buffers
_BALANCED = 0.9  # SGLang's own bound
_RETURNED = 1 << 30
_TOO_HIGH = 0.95  # above it, graphs and activations have too little
_DRAFTS = re.compile(r"speculative_algorithm'?[=:] ?'")
_LIMITED = re.compile(r"\bmax_total_tokens'?[=:] ?\d")
_FRACTION = re.compile(r"mem[_-]fraction[_-]static'?[=:] ?(0?\.\d{1,9})")


@dataclass(frozen=True, slots=True)
class Cause:
    """Why memory ran out. `what`: in few words. `shown_by`: the numbers. `changes`: names of what helps."""

    what: str
    shown_by: str
    changes: tuple[str, ...] = ()


SERVING = ("ready", "a batch", "warm-up request")
_WHILE_SERVING = ("chunk", "logprobs")  # they change the memory of requests, not of captures
# What a frame shows about the last allocation: the first row that fits, from the innermost frame on.
_ASKING = (
    (r"logits_processor\.py|logprob|\b_get_logits\b", "a matrix of logits, rows by vocabulary",
     "requests chunk logprobs fraction"),
    (r"indexer|mqa_logits", "the sparse indexer's scores, a chunk's tokens by the context", "chunk context"),
    (r"symmetric_memory|symm_mem|pynccl_allocator",
     "the symmetric memory pool, which is taken after the KV pool", "fraction symmetric"),
    (r"\bNCCL\b|\bnccl", "NCCL's buffers, made at a communicator's first use, after the KV pool", "fraction"),
    (r"(?i)deep_?ep|nvshmem", "DeepEP's buffers, made at the first dispatch, after the KV pool",
     "fraction deepep"),
    (r"process_weights_after_loading|repack|shuffle_weight",
     "weights laid out anew after loading, beside the loaded ones", "ranks checkpoint"),
    (r"init_memory_pool|memory_pool\.py|kv_cache_configurator|_create_buffers|alloc_memory_pool",
     "the KV pool itself", "fraction"),
)  # fmt: skip
# If no frame shows it: by the phase in which memory ran out.
_LEAVES = "the KV pool leaves too little for "
_BY_PHASE = {
    "setup": ("the log does not show what asked for the memory", "fraction"),
    "communicator": ("the weights do not fit", "ranks checkpoint"),
    "weights": ("the weights do not fit", "ranks checkpoint"),
    "draft weights": ("the draft's weights do not fit", "ranks checkpoint"),
    "kv pool": ("the KV pool itself", "fraction"),
    "autotune": (f"{_LEAVES}the autotune dummy run", "fraction requests"),
    **dict.fromkeys(
        SERVING, ("activations of a batch, which the fraction does not count", "fraction chunk requests")
    ),
    **{graphs: (f"{_LEAVES}the {graphs}", "fraction graphs") for graphs in (*GRAPHS, EITHER_GRAPHS)},
}


def cause_of(log: ServerLog) -> Cause | None:
    """Return the cause, or None if the log shows no problem."""
    rules: tuple[Callable[[ServerLog], Iterator[Cause]], ...] = (_occupied, _refused, _ran_out, _given_back)
    return next((cause for rule in rules for cause in rule(log)), None)


def fraction_of(log: ServerLog) -> float | None:
    found = _FRACTION.search(log.server_args or "") or _FRACTION.search(log.refusal)
    return float(found[1]) if found else None


def least_fraction(log: ServerLog) -> float | None:
    """Return the share of the GPU that the weights take, SGLang's own lower bound of the fraction."""
    loaded = [step for step in log.lead.steps if step.phase in ("weights", "draft weights")]
    base, free = log.lead.baseline_bytes, loaded[-1].free_bytes if loaded else None
    return 1 - free / base if base and free is not None else None


def graphs_or(phase: str) -> str:
    """Return the name of the graphs that a phase captures or follows, else the phase's own name."""
    name = phase.removeprefix("after ")
    return name if name.endswith(" graphs") else phase


def _occupied(log: ServerLog) -> Iterator[Cause]:
    """Yield the cause that another process held memory: torch shows it, or this rank began with less."""
    oom, baseline = log.oom, log.lead.baseline_bytes
    total = oom.numbers.total_bytes if oom and oom.numbers else 0
    most = max((rank.baseline_bytes or 0 for rank in log.peers), default=0)
    shown = ""
    if oom is not None and (oom.others_bytes or 0) > _OTHERS:
        shown = f"{memory_bytes(oom.others_bytes or 0)} that are not this server's"
    elif total and baseline is not None and total - baseline > _CONTEXT:
        shown = f"{memory_bytes(total - baseline)} of {memory_bytes(total)} were taken before the weights"
    elif log.ended_by_memory and baseline is not None and baseline < _BALANCED * most:
        had = f"{log.lead.name} had {memory_bytes(baseline)} free before its weights"
        shown = f"{had}, where another rank had {memory_bytes(most)}"
    elif "capacity is unbalanced" in log.refusal:
        shown = "SGLang found less on one GPU than on the others before the weights"
    if shown:
        yield Cause("another process holds part of the GPU", shown, ("occupied", "fraction"))


def _refused(log: ServerLog) -> Iterator[Cause]:
    """Yield the cause that SGLang ended the start: the fraction leaves nothing for the KV cache."""
    if not log.refusal:
        return
    base, fraction, least = log.lead.baseline_bytes, fraction_of(log), least_fraction(log)
    shown = "SGLang's own words"
    if least is not None and base is not None:
        shown = f"{memory_bytes(least * base)} of {memory_bytes(base)} are weights"
        if (draft := log.lead.step("draft weights")) and draft.used_bytes:
            shown += f", {memory_bytes(draft.used_bytes)} of them the draft's"
        shown += f", so the fraction must be beyond {least:.4f}"
    shown += f"; --mem-fraction-static is {fraction:g}" if fraction else ""
    leaves = "too little" if fraction and least and fraction > least else "nothing"
    changes = ("raise", "ranks") if least is None or least < _TOO_HIGH else ("ranks",)
    yield Cause(f"the weights leave {leaves} of the fraction for the KV cache", shown, changes)


def _ran_out(log: ServerLog) -> Iterator[Cause]:
    oom = log.oom
    if oom is None:
        return
    numbers = oom.numbers
    if numbers and numbers.reserved_unallocated_bytes >= numbers.tried_bytes:
        held, tried = map(memory_bytes, (numbers.reserved_unallocated_bytes, numbers.tried_bytes))
        shown = f"torch held {held} in pieces, each too small for the {tried} it tried"
        yield Cause("fragmented memory", shown, ("segments", "fraction"))
    short = numbers.tried_bytes - numbers.free_bytes if numbers else 0
    segments: tuple[str, ...] = ()
    pieces = ""
    if numbers and 0 < short < numbers.reserved_unallocated_bytes:
        held = memory_bytes(numbers.reserved_unallocated_bytes)
        segments, pieces = ("segments",), f"{held} are fragmented: reserved by torch, not allocated"
    calls = (f"{'/'.join(frame.file.split('/')[-2:])} {frame.function}" for frame in reversed(oom.frames))
    for words in (oom.text, *calls):
        for pattern, what, changes in _ASKING:
            if re.search(pattern, words):
                where = (*SERVING, "setup")
                helps = (c for c in changes.split() if oom.phase in where or c not in _WHILE_SERVING)
                yield Cause(what, pieces, (*segments, *helps, *_graphs_too(oom)))
    what, changes = _BY_PHASE.get(graphs_or(oom.phase), (f"{_LEAVES}what comes after it", "fraction"))
    before = _after_pool(log, oom) if _LEAVES in what else _ready(log, oom)
    yield Cause(what, "; ".join(filter(None, (", ".join(before), pieces))), (*segments, *changes.split()))


def _graphs_too(oom: Death) -> tuple[str, ...]:
    return ("graphs",) if graphs_or(oom.phase).endswith(" graphs") else ()


def _after_pool(log: ServerLog, oom: Death) -> Iterator[str]:
    free, fraction = log.lead.free_after("kv pool"), fraction_of(log)
    if free is not None:
        yield f"{memory_bytes(free)} were left after it" + (f" at {fraction:g}" if fraction else "")
    elif fraction:
        yield f"--mem-fraction-static is {fraction:g}"
    if log.lead.capture is not None and _graphs_too(oom):
        shape, left = log.lead.capture
        yield f"{memory_bytes(left)} when {shape or 'the last graph'} began"


def _ready(log: ServerLog, oom: Death) -> Iterator[str]:
    free = log.lead.free_after("ready")
    if oom.phase == "ready" and free is not None:
        yield f"{memory_bytes(free)} were free when it was ready"


def _given_back(log: ServerLog) -> Iterator[Cause]:
    """Yield the cause that memory was freed after the KV pool was sized, which made the pool too small."""
    if log.death is not None:
        return
    lead = log.lead
    pool = lead.free_after("kv pool")
    begun = (step.before_bytes for step in lead.steps if step.phase in GRAPHS)
    before = next((free for free in begun if free is not None), None)
    if pool is not None and before is not None and before - pool > _RETURNED:
        drafts = lead.step("draft weights") is not None or _DRAFTS.search(log.server_args or "")
        whose = "the draft's own embedding and head" if drafts else "what the loader still held"
        shown = f"{memory_bytes(before - pool)} came back between the KV pool and the first capture"
        yield Cause(f"the pool was sized before {whose} went", shown, ("larger pool",))
    fraction, ready = fraction_of(log), lead.free_after("ready")
    if fraction is None or ready is None or not lead.baseline_bytes:
        return
    slack = round((1 - fraction) * lead.baseline_bytes)
    is_small = _LIMITED.search(log.server_args or "") or (pool or 0) - slack > _RETURNED
    if ready - slack > _RETURNED and not is_small:
        shown = f"{memory_bytes(ready)} are free at ready, where the fraction keeps {memory_bytes(slack)}"
        yield Cause("the pool was sized before other memory was given back", shown, ("larger pool",))


def missing_of(log: ServerLog) -> Iterator[str]:
    """Yield what the log lacks that would show more."""
    oom, lead = log.oom, log.lead
    if lead.baseline_bytes is None:
        yield "no 'Load weight begin' line: what others held is unknown"
    before_pool = ("communicator", "weights", "draft weights")
    if oom is not None and oom.phase not in before_pool and lead.free_after("kv pool") is None:
        whose = f" of {lead.name}" if lead.rank else ""
        yield f"no 'Memory pool end' line{whose}: what the pool left is unknown"
    if oom is not None and not oom.frames:
        yield "no traceback of this allocation"
    if log.server_args is None and fraction_of(log) is None:
        yield "no server_args= line: the fraction is unknown"
