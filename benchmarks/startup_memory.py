"""A whole start on this GPU, phase by phase, beside its prediction.

    PYTHONPATH=. python benchmarks/startup_memory.py --preset Qwen3-30B-A3B --no-autotune
    PYTHONPATH=. python benchmarks/startup_memory.py --preset GLM-5.1-FP8 --tp 8 --dp 8 --layers 8

One GPU stands for any rank of a deployment: its peers are arithmetic. Weights are random, of the exact sizes.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.record import write_record
from runtime.devices.base import Device
from runtime.devices.cuda import Cuda
from runtime.devices.meta import Meta
from runtime.forward.comm import VirtualCommunicator
from runtime.models.known import model_config
from runtime.server.choices.graphs import decode_graph_sizes, prefill_graph_sizes
from runtime.server.config import Cache, Graphs, Kernels, ModelConfig, RuntimeConfig, SpeculativeConfig
from runtime.server.parallel import ParallelConfig
from runtime.server.units import MIB
from runtime.simulate.constants import H200, Constant
from runtime.start.model_runner import ModelRunner
from runtime.start.options import StartOptions
from runtime.start.phases import PhaseRecorder
from runtime.start.run_record import Phase

PRESETS = Path(__file__).parent.parent / "sgl_tune" / "presets" / "models"
ALLOWED_RATIO, ALLOWED_MIB = 0.03, 128


def preset(name: str, layers: int | None) -> ModelConfig:
    model = model_config(json.loads((PRESETS / f"{name}.json").read_text())["config"])
    return shortened(model, layers) if layers else model


def shortened(model: ModelConfig, layers: int) -> ModelConfig:
    """The model's first layers."""
    return replace(
        model,
        layer_kinds=model.layer_kinds[:layers],
        attention_kinds=model.attention_kinds[:layers],
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="Qwen3-30B-A3B", help=f"a file of {PRESETS}")
    parser.add_argument("--layers", type=int, help="use the model's first layers only")
    for name in ("tp", "dp", "pp", "ep"):
        parser.add_argument(f"--{name}", type=int, default=1)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--mem-fraction-static", type=float)
    parser.add_argument("--moe-runner-backend", default="flashinfer_cutlass")
    parser.add_argument("--moe-a2a-backend", default="none")
    parser.add_argument("--context-length", type=int)
    parser.add_argument("--chunked-prefill-size", type=int)
    parser.add_argument("--max-running-requests", type=int)
    parser.add_argument("--cuda-graph-max-bs", type=int)
    parser.add_argument("--kv-cache-dtype", default="auto")
    parser.add_argument("--speculative", action="store_true", help="EAGLE with the default of 3 steps")
    parser.add_argument("--no-prefill-graphs", action="store_true")
    parser.add_argument("--no-autotune", action="store_true", help="leave the dummy run out")
    parser.add_argument("--tune", action="store_true", help="tune for real in the dummy run, without a cache")
    parser.add_argument("--lm-head-in-autotune", action="store_true")
    parser.add_argument("--history", action="store_true", help="name the largest allocations (slow)")
    parser.add_argument("--predict-only", metavar="GIB", type=float, help="no GPU: predict one of this size")
    parser.add_argument("--out", help="write the record here (default: $OUT or benchmarks/results)")
    return parser.parse_args()


def start(args: argparse.Namespace, device: Device) -> ModelRunner:
    """Up to ready, or to the error, which is in the runner's recorder too."""
    parallel = ParallelConfig(tp=args.tp, pp=args.pp, dp=args.dp, ep=args.ep, enable_dp_attention=args.dp > 1)
    tokens = args.chunked_prefill_size or 8192
    prefill = () if args.no_prefill_graphs else prefill_graph_sizes(tokens)
    runtime = RuntimeConfig(
        cache=Cache(args.kv_cache_dtype),
        kernels=Kernels(moe=args.moe_runner_backend, a2a=args.moe_a2a_backend),
        graphs=Graphs(decode_graph_sizes(args.cuda_graph_max_bs or 256), prefill),
        prefill_tokens=tokens,
        max_running_requests=args.max_running_requests,
        mem_fraction_static=args.mem_fraction_static or 0.85,
        context_length=args.context_length,
        disable_autotune=args.no_autotune,
        autotune_cached=not args.tune,
        speculative=SpeculativeConfig() if args.speculative else None,
    )
    options = StartOptions(lm_head_in_autotune=args.lm_head_in_autotune)
    kind = Tuning if args.tune and isinstance(device, Cuda) else ModelRunner
    runner = kind(
        preset(args.preset, args.layers),
        parallel,
        runtime,
        device,
        lambda: VirtualCommunicator(parallel, args.rank),
        options=options,
        recorder=PhaseRecorder(device),
    )
    try:
        runner.start()
    except torch.OutOfMemoryError as error:
        print(f"out of memory: {error}\n")
    return runner


class Tuning(ModelRunner):
    """Tunes for real in the dummy run."""

    def tune(self) -> None:
        from runtime.autotune.session import AutotuneSession

        AutotuneSession(self.device.torch_device, self.runtime).run(super().tune, "decode")


def like(cuda: Cuda, context_bytes: int) -> Meta:
    """A prediction of this very process: its GPU and context, and no peers to join."""
    arch = f"sm{cuda.sm_major}0"
    outside = {**H200.outside, "context": Constant(context_bytes, "this GPU, this process")}
    return Meta(cuda.memory().total, arch, constants=replace(H200, outside=outside, nccl={}))


def compare(measured: Phase | None, predicted: Phase) -> dict[str, Any]:
    row: dict[str, Any] = {"phase": predicted.name, "predicted": asdict(predicted)}
    if measured is not None:
        difference = predicted.peak_bytes - measured.peak_bytes
        row["measured"] = asdict(measured)
        row["difference_mib"] = round(difference / MIB, 1)
        row["within"] = abs(difference) <= max(ALLOWED_RATIO * measured.peak_bytes, ALLOWED_MIB * MIB)
    return row


COLUMNS = {
    "peak": "peak_bytes",
    "persistent": "persistent_bytes",
    "reserved peak": "reserved_peak_bytes",
    "non-torch": "non_torch_bytes",
}


def table(rows: list[dict[str, Any]]) -> str:
    """MiB, each column measured and predicted."""
    lines = [
        " ".join([f"{'MiB (measured, predicted)':<26}", *(f"{name:^21}" for name in COLUMNS), "seconds"])
    ]
    for row in rows:
        cells = [f"{row['phase']:<26}"]
        for name in COLUMNS.values():
            cells += [_mib(row.get("measured"), name), _mib(row["predicted"], name)]
        seconds = row.get("measured", row["predicted"])["seconds"]
        verdict = "" if row.get("within", True) else f"  off by {row['difference_mib']} MiB"
        lines.append(" ".join(cells) + f" {seconds:>7.2f}{verdict}")
    return "\n".join(lines)


def _mib(phase: dict[str, Any] | None, name: str) -> str:
    return f"{phase[name] / MIB:>10.1f}" if phase else f"{'-':>10}"


def main() -> None:
    args = parse()
    measured: dict[str, Phase] = {}
    record: dict[str, Any] = {"arguments": vars(args)}
    if args.predict_only:
        device = Meta(int(args.predict_only * 1024 * MIB))
    else:
        cuda = Cuda(history=args.history)
        runner = start(args, cuda)
        measured = {phase.name: phase for phase in runner.recorder.phases}
        record["measured_plan"] = asdict(runner.plan)
        device = like(cuda, measured["communicator"].non_torch_bytes)
    predicted = start(args, device)
    record["predicted_plan"] = asdict(predicted.plan)
    record["phases"] = [compare(measured.get(p.name), p) for p in predicted.recorder.phases]
    print(table(record["phases"]))
    for name in ("measured_plan", "predicted_plan"):
        if name in record:
            print(f"{name}: {record[name]}")
    layout = "_".join(f"{name}{getattr(args, name)}" for name in ("tp", "dp", "pp", "ep"))
    path = write_record(f"startup_memory.{args.preset}.{layout}", record, args.out)
    print(f"written to {path}")


if __name__ == "__main__":
    main()
