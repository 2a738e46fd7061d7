"""Make the report that every view shows from the record of a start, on the ghost or on a GPU."""

import re
from collections.abc import Iterator

from runtime.devices.readings import OutOfMemory, parse_out_of_memory
from runtime.ghost.gpus import Gpu, gpus
from runtime.ghost.outside import COMMUNICATOR_COUNT, MEASURED_ON, MEASURED_RANKS, Outside
from runtime.record import parts
from runtime.record.record import Record
from runtime.start.run_record import Failure, Phase, Run
from sgl_tune.asking.live import NAMES, ROOT
from sgl_tune.memory.parts import NCCL, OTHERS, Owned, Share, rooted
from sgl_tune.memory.report import MemoryReport, Sizes, Trust, Whose
from sgl_tune.memory.starting import layout_of
from sgl_tune.units import count, some

_DRIVERS = "CUDA error: out of memory"  # torch's text if memory outside it was refused
COMPILED = "torch.compile"  # the store whose missing kernels it times
_SILENT = "SGLang refused the command without a word"
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/")
_OURS = ("/runtime/sglang/inside/", "/runtime/ghost/inside/")


def report_of(
    record: Record, gpu: Gpu, title: str, outside: Outside, flags: str = "", taken_bytes: int = 0
) -> MemoryReport:
    """Return the report of a record. `outside`: the table of memory outside torch. `taken_bytes`: held by
    other processes."""
    at, layout, versions = record.ending.at, layout_of(record), record.asked.versions
    seen = next(iter(record.phases), at)
    ranks = f"rank {record.asked.rank} of {layout.ranks}, SGLang {versions.get('sglang', '?')}"
    is_ghost = record.asked.source == "ghost"
    whose = Whose(
        gpu=gpu.name,
        source="ghost" if is_ghost else "measured",
        title=title,
        subtitle=f"{ranks}, on the ghost" if is_ghost else ranks,
        flags=flags or " ".join(record.asked.argv),
        rank=record.asked.rank,
        rank_name=layout.name(record.asked.rank),
    )
    phases = tuple(_phase(one, is_ghost) for one in record.phases if one.name != ROOT)
    trust = Trust(
        exact=record.exact,
        inexact=tuple(map(_why, record.inexact)),
        cage_lacks=record.asked.lacking,
        warnings=tuple(_without_graphs(record)),
        notes=tuple(_notes(record, gpu)),
    )
    return MemoryReport(
        whose=whose,
        total_bytes=seen.total if seen else gpu.total_bytes,
        run=rooted(Run({}, phases, _failure(record), ())),
        sizes=_sizes(record),
        margin_bytes=outside.doubt_of(record.counted) if is_ghost else 0,
        trust=trust,
        owned=_owned(record, outside, taken_bytes),
        refused=_refusal(record.ending),
        stack=stack_of(record.ending),
    )


def _owned(record: Record, outside: Outside, taken_bytes: int) -> Owned:
    weights: dict[str, dict[str, int]] = {}
    for one in record.held:
        weights.setdefault(one.phase, {})[one.what] = one.bytes
    return Owned(weights, (Share(OTHERS, taken_bytes), Share(NCCL, _nccl(record, outside))))


def _nccl(record: Record, outside: Outside) -> int:
    """Return the bytes of NCCL's communicators by the table. The first one takes more than later ones."""
    groups = _groups(record).items()
    sizes = [count * outside.communicator(ranks).bytes for ranks, count in groups if ranks > 1]
    first = outside.numbers.get("first")
    return sum(sizes) + (first.bytes if sizes and first else 0)


def _groups(record: Record) -> dict[int, int]:
    """Return how many communicators of so many ranks the start opened."""
    named = ((name.removeprefix(COMMUNICATOR_COUNT), n) for name, n in record.counted.items() if n)
    return {int(ranks): n for ranks, n in named if ranks.isdigit()}


def _notes(record: Record, gpu: Gpu) -> Iterator[str]:
    """Yield what is assumed or unknown about the memory, beside the error bar."""
    is_ghost = record.asked.source == "ghost"
    if is_ghost and record.phases and gpu.key != MEASURED_ON:
        measured = gpus()[MEASURED_ON].name
        yield f"memory outside torch, and the ±, were measured on {measured}, not on {gpu.name}"
    absent = sorted({one.name for one in record.modules if one.state == "stub"})
    if is_ghost and record.phases and absent:
        missing = f"{len(absent)} modules that are not compiled here ({some(absent)})"
        yield f"memory outside torch does not include the code of {missing}"
    timed = sum(one.store == COMPILED and not one.found for one in record.files)
    if timed:
        kernels = count(timed, "kernel")
        yield f"torch.compile's cache is assumed to be empty: with {kernels} there a server may peak lower"
    groups = _groups(record) if is_ghost else {}
    if unmeasured := sorted(groups.keys() - {1, *MEASURED_RANKS}):
        known, ranks = (" and ".join(map(str, some)) for some in (MEASURED_RANKS, unmeasured))
        yield f"NCCL was measured on {known} GPUs: its bytes and ± for {ranks} ranks are extrapolated"
    if groups:
        yield "the host's NVLink multicast is assumed to be off; collectives may take more where it is on"
    yield from (f"the record does not have: {lack}" for lack in record.lacks)


def _sizes(record: Record) -> Sizes:
    """Return the sizes of the start. If it did not become ready, only those that SGLang had resolved."""
    if record.sizes is not None:
        return Sizes(**vars(record.sizes))
    settled, given = record.settled, record.arguments
    fraction, chunk = given.get("mem_fraction_static"), given.get("chunked_prefill_size")
    requests = given.get("max_running_requests")
    most = settled.most_requests if settled else None
    return Sizes(
        mem_fraction_static=fraction if isinstance(fraction, float) else None,
        chunked_prefill_size=chunk if isinstance(chunk, int) and chunk > 0 else None,
        context_length=settled.context_length if settled else None,
        max_running_requests=requests if isinstance(requests, int) and requests > 0 else most,
    )


def _without_graphs(record: Record) -> Iterator[str]:
    """Yield a note if the server captured no prefill graphs although no flag shows it."""
    is_off = record.arguments.get("disable_cuda_graph") is True
    for one in record.phases:
        if one.name == "prefill graphs" and one.allocated_before == one.allocated == one.peak and not is_off:
            yield "no prefill graphs were captured: SGLang gave them up, or a flag disables them"


def _why(one: parts.Inexact) -> str:
    if one.kind == "command":
        return f"{one.name} of the command was not used: {one.why}"
    where = f" in {NAMES.get(one.phase, one.phase)}" if one.phase else ""
    return f"{one.name}{where}: {one.why}"


def stack_of(ending: parts.Ending) -> tuple[str, ...]:
    """Return the stack of calls that led to the end, without sgl-tune's own frames."""
    return tuple(
        _PACKAGES.sub("", frame) for frame in ending.stack if not any(ours in frame for ours in _OURS)
    )


def _phase(one: parts.Phase, is_counted: bool = False) -> Phase:
    """Return a phase as the report shows it. `is_counted`: free memory was watched all the time, not only
    read before and after the phase."""
    least = one.least_free if is_counted else max(0, one.total - one.outside - one.reserved_peak)
    return Phase(
        name=NAMES.get(one.name, one.name),
        depth=max(0, one.depth - 1),
        seconds=one.seconds,
        persistent_bytes=one.allocated - one.allocated_before,
        peak_bytes=one.peak,
        transient_bytes=one.peak - one.allocated,
        allocated_bytes=one.allocated,
        reserved_bytes=one.reserved,
        reserved_peak_bytes=one.reserved_peak,
        free_at_peak_bytes=least,
        non_torch_bytes=one.outside,
    )


def _failure(record: Record) -> Failure | None:
    ending = record.ending
    if ending.how != "died":
        return None
    text, name = ending.text or "", ending.phase or ROOT
    at = _phase(ending.at) if ending.at is not None else _last(record, name)
    oom = parse_out_of_memory(text, _where(ending))
    if oom is None and _DRIVERS in text:
        unused = at.reserved_bytes - at.allocated_bytes
        oom = OutOfMemory(
            tried_bytes=0,
            free_bytes=ending.at.free if ending.at else at.free_at_peak_bytes,
            total_bytes=ending.at.total if ending.at else 0,
            allocated_bytes=at.allocated_bytes,
            reserved_unallocated_bytes=unused,
            where=_where(ending),
            by_driver=True,
        )
    return Failure(NAMES.get(name, name), f"{ending.type}: {text}", oom, at)


def _last(record: Record, name: str) -> Phase:
    """Return a phase for an end between two phases, with the memory that the last phase left."""
    if not record.phases:
        return Phase(name, 0, 0.0, 0, 0, 0, 0, 0, 0, 0, 0)
    last = record.phases[-1]
    return _phase(parts.Phase(**{**vars(last), "name": name, "depth": 1}))


def _where(ending: parts.Ending) -> str:
    """Return the innermost call in SGLang's own code."""
    own = [frame for frame in stack_of(ending) if frame.startswith("sglang/")]
    return own[-1].removeprefix("sglang/") if own else ""


def _refusal(ending: parts.Ending) -> str:
    """Return SGLang's own message if it refused the command, else ""."""
    if ending.how != "refused":
        return ""
    lines = (ending.text or "").strip().splitlines()
    said = lines[-1] if lines else _SILENT
    return said if ending.type in (None, "SystemExit") else f"{ending.type}: {ending.text}"
