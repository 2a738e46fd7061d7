"""A start of a stock SGLang 0.5.17, measured on one H200, beside its prediction, with what explains each gap.

    PYTHONPATH=. python benchmarks/stock_start.py

The measured numbers are tests/memory/data/sglang-0.5.17-qwen3-30b-start.json: torch's counters and the
driver's free memory after each of SGLang's own start-up steps. Its tactics were cached: nothing was profiled.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.record import write_record
from runtime.server.units import MIB
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.project_file import meant_by
from sgl_tune.deployment.selection import deployment_of
from sgl_tune.memory.core.predict import predict
from sgl_tune.memory.core.start import starts_of
from sgl_tune.memory.report import MemoryReport

ALLOWED_RATIO, ALLOWED_MIB = 0.03, 128
STOCK = Path(__file__).parent.parent / "tests" / "memory" / "data" / "sglang-0.5.17-qwen3-30b-start.json"
FLAGS = ServerFlags.of(
    model_path="Qwen/Qwen3-30B-A3B",
    moe_runner_backend="flashinfer_cutlass",
    attention_backend="triton",
    mem_fraction_static=0.85,
    context_length=40960,
    cuda_graph_max_bs=256,
    sglang_version="0.5.17",
    gpu="H200",
)
STEPS = {
    "weights": "load_model",
    "kv pool": "alloc_memory_pool",
    "attention backend": "init_attention_backends",
    "ready": "init_cuda_graphs",
}
LAST = ("eager buffers", "autotune", "prefill graphs", "decode graphs", "ready")
REASONS = {
    "weights: allocated": "SGLang had 6.1 MiB allocated before it loaded",
    "weights: reserved": "it had 22 MiB reserved before it loaded; 10 MiB are not traced",
    "weights: outside torch": "",
    "kv pool: allocated": "344 tokens more are 32 MiB, less the 6 MiB above",
    "kv pool: reserved": "the static fraction fixes the sum of weights and pool",
    "kv pool: outside torch": "",
    "attention backend: allocated": "as the KV pool",
    "attention backend: reserved": "as the KV pool",
    "attention backend: outside torch": "the constant is from starts of this runtime, which load 2 MiB less",
    "ready: allocated": "as the KV pool, less 32 MiB that SGLang's runners keep; not traced to a tensor",
    "ready: reserved": "presumably its prefill graphs: broken at each attention, they keep more",
    "ready: outside torch": "graph nodes are counted on this runtime's kernels, not SGLang's",
    "autotune and capture: peak allocated": "as the KV pool",
    "autotune and capture: peak reserved": "not traced",
    "KV tokens": "the weights reserve 32 MiB less, which the pool gets",
    "requests a rank": "",
}


@dataclass(frozen=True)
class Row:
    what: str
    predicted: int
    measured: int
    in_bytes: bool = True

    @property
    def within(self) -> bool:
        return abs(self.predicted - self.measured) <= max(ALLOWED_RATIO * self.measured, ALLOWED_MIB * MIB)

    def cells(self) -> list[str]:
        gap = self.predicted - self.measured
        if self.in_bytes:
            numbers = [f"{self.predicted / MIB:,.1f}", f"{self.measured / MIB:,.1f}", f"{gap / MIB:+,.1f}"]
        else:
            numbers = [f"{self.predicted:,}", f"{self.measured:,}", f"{gap:+,}"]
        share = f"{gap / self.measured:+.2%}".replace("%", " %")
        return [self.what, *numbers, share, "yes" if self.within else "NO", REASONS[self.what]]


def prediction() -> MemoryReport:
    start = starts_of(deployment_of(meant_by(FLAGS)[0]), "0")[0]
    return predict(start.as_measured())


def rows(report: MemoryReport) -> list[Row]:
    stock = json.loads(STOCK.read_text())
    found = []
    for name, step in STEPS.items():
        phase, real = report.phase(name), stock["after"][step]
        assert phase is not None
        found += [
            Row(f"{name}: allocated", phase.allocated_bytes, real["alloc"]),
            Row(f"{name}: reserved", phase.reserved_bytes, real["reserved"]),
            Row(
                f"{name}: outside torch",
                phase.non_torch_bytes,
                real["total"] - real["free"] - real["reserved"],
            ),
        ]
    last = [phase for phase in report.phases if phase.name in LAST]
    real = stock["after"]["init_cuda_graphs"]
    found += [
        Row("autotune and capture: peak allocated", max(phase.peak_bytes for phase in last), real["peak"]),
        Row("autotune and capture: peak reserved", max(p.reserved_peak_bytes for p in last), real["rpeak"]),
        Row("KV tokens", report.sizes.kv_tokens or 0, stock["kv_tokens"], in_bytes=False),
        Row("requests a rank", report.sizes.max_running_requests or 0, stock["max_running_requests"], False),
    ]
    return found


def markdown(found: list[Row]) -> str:
    head = ["MiB", "predicted", "measured", "gap", "", "within 3 % or 128 MiB", "why"]
    lines = [head, ["---", "---:", "---:", "---:", "---:", "---", "---"], *(row.cells() for row in found)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    found = rows(prediction())
    print(markdown(found))
    path = write_record("stock_start", {"flags": FLAGS.given(), "rows": [asdict(row) for row in found]})
    path.with_suffix(".md").write_text(
        "# A stock SGLang 0.5.17 start on one H200, predicted\n\n"
        f"Qwen3-30B-A3B; `PYTHONPATH=. python benchmarks/stock_start.py`\n\n{markdown(found)}\n"
    )


if __name__ == "__main__":
    main()
