"""Fifteen models warmed on the ghost: is every key that the server asks in the files, and nothing else?

    PYTHONPATH=. python benchmarks/real_starts/warmed.py SERVER [MODEL ...]

SERVER is a Python or a venv with SGLang. `warmed.toml` has the models: their shapes with a few layers, random
weights, and a server's flags. The ranks that may differ are started on GPUs that are not there. Their calls
are made again under our search, with clocks that are stubs, and the files are compared with what each start
asked. Each row goes to results/ghost_warmed.json, all of them to results/ghost_warmed.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.real_starts.breadth import PRESETS, commit
from runtime.record.record import Record
from runtime.toml import tomllib
from sgl_tune.asking.asking import Answers, Asking
from sgl_tune.asking.question import Question, gpu_of
from sgl_tune.cache.asked import TunedOp
from sgl_tune.cache.record import read_cache_file
from sgl_tune.cli.format import Format
from sgl_tune.cli.out import Output
from sgl_tune.errors import SglTuneError
from sgl_tune.recorded.asked import records_of
from sgl_tune.recorded.plan import RecordedPlan, Whose, plan_of
from sgl_tune.servers.server import Server, server_at
from sgl_tune.warm.devices import Devices
from sgl_tune.warm.story import Settings, warm_records
from tests.warm.recorded.on_ghost import how_on_ghost

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results"
FIRST, SECOND = (tomllib.loads((HERE / f"warmed{name}.toml").read_text()) for name in ("", "_quantized"))
QUANTIZED = SECOND.pop("quantization")
MODELS: dict[str, Any] = {**FIRST, **SECOND}
GPU, SECONDS = "h200", 900.0
FLAGS, NO_GRAPHS = "--max-running-requests 256", "--disable-cuda-graph"
BACKEND = "flashinfer_cutlass"
COLUMNS, SECOND_COLUMNS = (
    ("keys asked", "missing", "extra", "files", "contents"),
    ("tuned by the start", "left"),
)
NOTES = (HERE / "warmed_notes.md").read_text()
ONE = Devices("cuda", (0,), 1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="warmed.py", description=__doc__)
    parser.add_argument("server", type=Path)
    parser.add_argument("models", nargs="*")
    asked = parser.parse_args()
    server = server_at(asked.server)
    assert isinstance(server, Server), server
    with tempfile.TemporaryDirectory(prefix="warmed-") as folder, Answers(Asking(Path(folder))) as answers:
        for name in asked.models or MODELS:
            keep(row(name, server, answers, Path(folder) / name))


def row(name: str, server: Server, answers: Answers, work: Path) -> dict[str, Any]:
    model, started = MODELS[name], time.monotonic()
    shape = config(model)
    (work / "model").mkdir(parents=True)
    (work / "model" / "config.json").write_text(json.dumps(shape))
    is_nvfp4 = model.get("quantized") == "nvfp4"
    gpu = model.get("gpu", "b200" if is_nvfp4 else GPU)
    backend = model.get("backend", "" if is_nvfp4 else BACKEND)
    own = f"{model['flags']} --moe-runner-backend {backend}" if backend else model["flags"]
    if "draft" in model:
        (work / "draft").mkdir()
        (work / "draft" / "config.json").write_text(json.dumps(config({"shape": model["draft"]})))
        own = f"{own} --speculative-draft-model-path {name}/draft"
    graphs = () if model.get("graphs") else (NO_GRAPHS,)
    flags = ("--model-path", str(work / "model"), *_here(own, name, work), *graphs, *FLAGS.split())
    question = Question(server, flags, model.get("environment", {}), gpu_of(gpu), title=name)
    found = {"model": name, "gpu": gpu, "flags": own, "sglang": server.sglang, "commit": commit()}
    found |= {"architecture": shape["architectures"][0], "core": model.get("core", False)}
    found |= {"graphs": bool(model.get("graphs")), "environment": model.get("environment", {})}
    try:
        records = records_of(question, answers, lambda event: None)
        plan = plan_of(records, Whose(name, name, work / "cache"), 1)
        found |= {"ranks": [record.asked.rank for record in records], **compared(plan, server, gpu, work)}
        found["inexact"] = sorted({f"{one.kind}: {one.name}" for one in plan.inexact})
    except SglTuneError as error:
        found["failed"] = str(error)[:600]
    found["seconds"] = round(time.monotonic() - started)
    print(json.dumps(found), flush=True)
    return found


def _here(flags: str, name: str, work: Path) -> list[str]:
    return flags.replace(f"{name}/draft", str(work / "draft")).split()


def config(model: dict[str, Any]) -> dict[str, Any]:
    """The model's config.json; a member that is changed to false is left out."""
    if model["shape"].startswith("models/"):
        found = json.loads((HERE / model["shape"] / "config.json").read_text())
    else:
        found = json.loads((PRESETS / f"{model['shape']}.json").read_text())["config"]
    change = dict(model.get("change", {}))
    if "quantized" in model:
        change["quantization_config"] = QUANTIZED[model["quantized"]]
    kept = {name: value for name, value in found.items() if change.get(name) is not False}
    return {**kept, **{name: value for name, value in change.items() if value is not False}}


def compared(plan: RecordedPlan, server: Server, gpu: str, work: Path) -> dict[str, Any]:
    """What the starts asked beside what a warm of their records wrote."""
    left = sorted({f"{function}: {why}" for function, why in plan.left})
    if not plan.caches:
        return {"says": plan.says, "asked": len(asked_by(plan.records)), "left": left}
    settings = Settings(ONE, SECONDS, how=how_on_ghost(server.python, gpu, work / "ghost"))
    warmed = warm_records(plan, settings, Output(Format.quiet))
    written: set[str] = set()
    contents = set()
    for cache in warmed.caches:
        for path in cache.written.paths:
            written |= read_cache_file(path).entries.keys()
            contents.add(path.read_bytes())
    asked = asked_by(plan.records)
    ops = [op for cache in plan.caches for op in cache.ops]
    proofs = [cache.proof for cache in warmed.caches if cache.proof]
    return {
        "says": plan.says,
        "asked": len(asked),
        "written": len(written),
        "missing": sorted(asked - written)[:4],
        "extra": sorted(written - asked)[:4],
        "files": sum(len(cache.written.paths) for cache in warmed.caches),
        "contents": len(contents),
        "ops": [
            {"op": op.op, **{mode: buckets_of(op, mode, written) for mode in ("tuning", "serving")}}
            for op in ops
        ],
        "proof": {"asked": sum(p.asked for p in proofs), "misses": sum(len(p.misses) for p in proofs)},
        "left": left,
    }


def buckets_of(op: TunedOp, mode: str, written: set[str]) -> list[int]:
    """The buckets that are in the files, of those that a start tunes, or of those that it asks for only while
    it serves."""
    return sorted({one.bucket for one in op.entries if one.asked_by == mode and one.key in written})


def asked_by(records: tuple[Record, ...]) -> set[str]:
    """Every key that a start asks the tuner for: while it tunes, for every bucket; while it serves."""
    tuned = {key for record in records for call in record.calls for key in call.keys}
    return tuned | {one.key for record in records for one in record.keys if one.mode == "serve"}


def keep(one: dict[str, Any]) -> None:
    file = RESULTS / "ghost_warmed.json"
    rows = json.loads(file.read_text())["models"] if file.exists() else []
    rows = [*(other for other in rows if other["model"] != one["model"]), one]
    rows.sort(key=lambda row: list(MODELS).index(row["model"]))
    told = {"command": "benchmarks/real_starts/warmed.py", "gpu": GPU, "models": rows}
    file.write_text(json.dumps(told, indent=1) + "\n")
    (RESULTS / "ghost_warmed.md").write_text(page(rows))


def page(rows: list[dict[str, Any]]) -> str:
    first, second = ([row for row in rows if row["model"] in names] for names in (FIRST, SECOND))
    return (
        f"# Models warmed on the ghost, SGLang {rows[0]['sglang']}\n\n"
        "`benchmarks/real_starts/warmed.py`: a few layers of each model, clocks that are stubs. Asked: every"
        " key that a start of the ranks that may differ asks FlashInfer's tuner for. Missing: asked, and not"
        " in the files. Extra: in the files, and never asked. Contents: how many different rank files were"
        f" written.\n\n{table(first)}\n"
        "## NVFP4, block fp8, drafts and collectives\n\n"
        "SGLang chooses the backends. CUDA graphs are captured where the flags are followed by (graphs), and"
        " only then a start asks for what it serves. Left: the buckets that it asks for under keys that its"
        " own tuning leaves out; the warm's files have them."
        f"\n\n{table(second, SECOND_COLUMNS)}\n{NOTES}"
    )


def table(rows: list[dict[str, Any]], more: tuple[str, ...] = ()) -> str:
    head = ["model", "class", "GPU", "flags", *COLUMNS, *more]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for one in rows:
        environment = "".join(f"{name}={value} " for name, value in one.get("environment", {}).items())
        flags = f"{environment}{one['flags']}{' (graphs)' if one.get('graphs') else ''}"
        told = [one["model"], one["architecture"], one.get("gpu", GPU).upper(), flags]
        if "missing" in one:
            told += [str(one["asked"]), str(len(one["missing"])), str(len(one["extra"]))]
            told += [str(one["files"]), str(one["contents"]), *(told_buckets(one) if more else ())]
        else:
            told += [one.get("failed") or one["says"], *("-" for _ in (*COLUMNS, *more)[1:])]
        lines.append(f"| {' | '.join(told)} |")
    return "\n".join(lines) + "\n"


def told_buckets(one: dict[str, Any]) -> tuple[str, str]:
    """The ops with the buckets that the start tunes, and those that it leaves."""
    tuned = [f"{op['op']} {op['tuning'][0]} to {op['tuning'][-1]}" for op in one["ops"] if op["tuning"]]
    left = [f"{op['op']} {', '.join(map(str, op['serving']))}" for op in one["ops"] if op["serving"]]
    return "<br>".join(tuned) or "-", "<br>".join(left) or "none"


if __name__ == "__main__":
    sys.exit(main())
