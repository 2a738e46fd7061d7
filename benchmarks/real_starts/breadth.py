"""Many models on one release of SGLang, on GPUs that are not there: which start, and what is inexact.

    PYTHONPATH=. python benchmarks/real_starts/breadth.py SERVER_PYTHON [--gpu h200] [--layers N] [MODEL ...]

Flags are SGLang's defaults but for tp. Each row goes to results/ghost_breadth.json as its start ends, and all
of them to results/ghost_breadth.md. With --layers only the first N layers of each model are started: the same
modules and findings, and less memory.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.real_starts.breadth_page import page
from runtime.ghost.gpus import gpus
from runtime.ghost.halves import halves_for
from runtime.ghost.outside import table
from runtime.record.record import Record
from runtime.sglang.server_process import Request, ServerProcess, ghost_for
from runtime.toml import tomllib
from sgl_tune.asking.kept import cache_folder

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results"
PRESETS = HERE.parents[1] / "sgl_tune" / "presets" / "models"
MODELS: dict[str, Any] = tomllib.loads((HERE / "breadth.toml").read_text())
FIRST_NODE = ("--dist-init-addr", "127.0.0.1:20000")
SECONDS, GPUS = 1500.0, 8


def main() -> None:
    asked = arguments()
    python = asked.python.absolute()
    packages = next(python.parents[1].glob("lib/python3*/site-packages"))
    names = asked.models or [name for name in MODELS if not asked.early or MODELS[name].get("early")]
    outside = {"numbers": table().text()}
    for gpu in asked.gpu:
        with (
            tempfile.TemporaryDirectory(prefix="breadth-") as folder,
            server(python, packages, gpu, Path(folder)) as sglang,
        ):
            for name in names:
                argv = command(name, asked.layers, Path(folder))
                record = sglang.run(Request(tuple(argv), outside=outside, name=name), seconds=SECONDS)
                keep(row(name, gpu, asked.layers, record))


def server(python: Path, packages: Path, gpu: str, work: Path) -> ServerProcess:
    """SGLang imported on a node of eight such GPUs, of which a start takes as many as its tp says."""
    ghost = ghost_for([packages], cache_folder(), gpus()[gpu], GPUS, halves=halves(packages, gpu))
    return ServerProcess(python, work / "server", ghost, {})


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="breadth.py", description=__doc__)
    parser.add_argument("python", type=Path)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--gpu", action="append", choices=sorted(gpus()))
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--early", action="store_true", help="the models that early releases are asked for")
    asked = parser.parse_intermixed_args()
    asked.gpu = asked.gpu or ["h200", "b200"]
    if unknown := set(asked.models) - MODELS.keys():
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    return asked


def halves(packages: Path, gpu: str) -> dict[str, str]:
    cuda = re.search(r"^cuda\b.*'(\d+)\.", (packages / "torch" / "version.py").read_text(), re.MULTILINE)
    if cuda is None:
        return {}
    return halves_for(packages, gpus()[gpu].arch, cuda=int(cuda[1]), root=cache_folder(), environment={})


def command(name: str, layers: int, work: Path) -> list[str]:
    model, folder = MODELS[name], work / name
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(model, layers)))
    nodes = max(1, model["tp"] // GPUS)
    argv = ["--model-path", str(folder), "--tp", str(model["tp"])]
    return argv if nodes == 1 else [*argv, "--nnodes", str(nodes), "--node-rank", "0", *FIRST_NODE]


def config(model: dict[str, Any], layers: int) -> dict[str, Any]:
    """The model's config.json; of its first layers alone, if their number is given."""
    shape = model["shape"]
    if shape.startswith("models/"):
        found = json.loads((HERE / shape / "config.json").read_text())
    else:
        found = json.loads((PRESETS / f"{shape}.json").read_text())["config"]
    found |= model.get("change", {})
    whole = found["num_hidden_layers"]
    if isinstance(kinds := found.get("attn_type_list"), list):
        found["attn_type_list"] = kinds[:1] * whole
    if 0 < layers < whole:
        found["num_hidden_layers"] = layers
        for key, value in found.items():
            if isinstance(value, (list, str)) and len(value) == whole:
                found[key] = value[:layers]
    return dict(found)


def row(name: str, gpu: str, layers: int, record: Record) -> dict[str, Any]:
    ending, versions = record.ending, record.asked.versions
    found = {
        "release": versions["sglang"],
        "torch": versions["torch"],
        "cuda": record.asked.cuda,
        "gpu": gpu,
        "model": name,
        "layers": layers or None,
        "commit": commit(),
        "tp": MODELS[name]["tp"],
        "ending": ending.how,
        "phase": ending.phase,
        "text": f"{ending.type or ''}: {(ending.text or '')[:600]}" if ending.how != "ready" else None,
        "stack": [re.sub(r"^.*/site-packages/", "", frame) for frame in ending.stack[-4:]],
        "kv_tokens": record.sizes.kv_tokens if record.sizes else None,
        "inexact": [[one.kind, one.name, one.phase, one.frame] for one in record.inexact],
        "cpu": record.cost.cpu,
        "rss": record.cost.rss,
    }
    print(
        gpu, name, found["ending"], found["phase"] or "", found["text"] or "", f"{found['cpu']} s", flush=True
    )
    for one in found["inexact"]:
        print("   ", *one, flush=True)
    return found


def commit() -> str:
    """Of the ghost that made a row: what it finds changes with it."""
    asked = subprocess.run(
        ["git", "-C", HERE, "describe", "--always", "--dirty"], capture_output=True, text=True
    )
    return asked.stdout.strip()


def keep(one: dict[str, Any]) -> None:
    """Put the row in the place of an older one of the same question, and write the page anew."""
    file = RESULTS / "ghost_breadth.json"
    rows = json.loads(file.read_text())["starts"] if file.exists() else []
    asked = ("release", "gpu", "model")
    rows = [other for other in rows if any(other[key] != one[key] for key in asked)]
    rows = sorted(
        [*rows, one], key=lambda row: (row["release"], row["gpu"], list(MODELS).index(row["model"]))
    )
    file.write_text(
        json.dumps({"command": "benchmarks/real_starts/breadth.py", "starts": rows}, indent=1) + "\n"
    )
    (RESULTS / "ghost_breadth.md").write_text(page(rows))


if __name__ == "__main__":
    sys.exit(main())
