"""Small reports for tests: a start of three phases, with an OOM where asked."""

from runtime.devices.readings import Held, OutOfMemory
from runtime.server.units import GIB
from runtime.start.run_record import Failure, Phase, Run
from sgl_tune.memory.report import Constant, MemoryReport, Sizes, Whose

TOTAL = 80 * GIB
NON_TORCH = 2 * GIB


def make_phase(
    name: str,
    before: float,
    after: float,
    peak: float | None = None,
    depth: int = 0,
    largest: tuple[Held, ...] = (),
) -> Phase:
    """Sizes in GiB; what is reserved is what was allocated at the peak."""
    most = max(before, after) if peak is None else peak
    return Phase(
        name=name,
        depth=depth,
        seconds=0.25,
        persistent_bytes=round((after - before) * GIB),
        peak_bytes=round(most * GIB),
        transient_bytes=round((most - max(before, after)) * GIB),
        allocated_bytes=round(after * GIB),
        reserved_bytes=round(after * GIB),
        reserved_peak_bytes=round(most * GIB),
        free_at_peak_bytes=max(0, TOTAL - NON_TORCH - round(most * GIB)),
        non_torch_bytes=NON_TORCH,
        largest=largest,
    )


def _make_failure(tried: float = 6.38) -> Failure:
    at_failure = make_phase(
        "autotune", 72, 72, 75, largest=(Held(3 * GIB, "new_empty [8, 154880] bfloat16", "logits.py:7 f"),)
    )
    numbers = OutOfMemory(
        tried_bytes=round(tried * GIB),
        free_bytes=3 * GIB,
        total_bytes=TOTAL,
        allocated_bytes=75 * GIB,
        reserved_unallocated_bytes=0,
        where="logits_processor.py:133 _gather_vocab",
    )
    return Failure(
        "autotune", "OutOfMemoryError: CUDA out of memory. Tried to allocate 6.38 GiB.", numbers, at_failure
    )


def make_report(failed: bool = False, free: float = 3.0, kv_tokens: int = 1_000_000) -> MemoryReport:
    """With `free` GiB left at the peak, which is in autotune."""
    phases = [make_phase("weights", 0, 40), make_phase("kv pool", 40, 72)]
    peak = (TOTAL - NON_TORCH) / GIB - free
    if not failed:
        inner = make_phase("dummy run", 72, 72, peak, depth=1)
        phases += [inner, make_phase("autotune", 72, 72.5, peak), make_phase("decode graphs", 72.5, 73)]
    return MemoryReport(
        whose=Whose("Test GPU", "core"),
        total_bytes=TOTAL,
        run=Run({}, tuple(phases), _make_failure() if failed else None, ()),
        sizes=Sizes(
            mem_fraction_static=0.9, kv_tokens=kv_tokens, kv_bytes_per_token=61464, decode_graphs=(1, 2, 4)
        ),
        constants=(Constant("context", NON_TORCH, "measured"),),
        margin_bytes=GIB // 4,
    )
