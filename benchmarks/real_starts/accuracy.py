"""Predictions of the starts in starts.toml, and their errors once they were measured.

    PYTHONPATH=. python benchmarks/real_starts/accuracy.py predict second             # before the runs
    PYTHONPATH=. python benchmarks/real_starts/accuracy.py commands second            # what drive.py reads
    PYTHONPATH=. python benchmarks/real_starts/accuracy.py judge second OUT_FOLDER    # what drive.py wrote
    PYTHONPATH=. python benchmarks/real_starts/accuracy.py again                      # as predicted today

The predictions are the runtime core's. `predict` writes results/real_starts_predicted_ROUND.json, `judge`
real_starts_ROUND.json, `again` real_starts_again.json.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.real_starts.referee import RANDOM_WEIGHTS
from benchmarks.record import write_record
from runtime.server.units import GIB, MIB
from runtime.toml import tomllib
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.project_file import meant_by
from sgl_tune.deployment.selection import deployment_of as resolved
from sgl_tune.memory.core.predict import predict
from sgl_tune.memory.core.start import starts_of
from sgl_tune.memory.report import MemoryReport

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
AGAIN = RESULTS / "real_starts_again.json"
MODELS = "benchmarks/real_starts/models/"
ROUNDS = ("first", "second", "third", "fourth", "fifth")
TOKENS, SHARE, LEAST = 0.005, 0.02, 256 * MIB
# What the referee calls what `mem-report` tells apart
NAMES = {"eager buffers": "eager", "draft graphs": "start", "ready": "start"}


@dataclass(frozen=True)
class RealStart:
    name: str
    gpus: int
    command: list[str]


def real_starts(of_round: str) -> Iterator[RealStart]:
    told = tomllib.loads((HERE / "starts.toml").read_text())
    for gpus, starts in told[of_round].items():
        for name, text in starts.items():
            model, *flags = shlex.split(text)
            flags = [*shlex.split(told["common"]), *flags]  # the later of two counts
            command = ["python", "-m", "sglang.launch_server", "--model-path", MODELS + model, *flags]
            yield RealStart(name, int(gpus), command)


def predictions_of(of_round: str) -> Path:
    return RESULTS / f"real_starts_predicted_{of_round}.json"


def measurements_of(of_round: str) -> Path:
    return RESULTS / f"real_starts_{of_round}.json"


def known_rounds() -> list[str]:
    return [name for name in ROUNDS if measurements_of(name).exists()]


def deployment_of(start: RealStart) -> Deployment:
    flags = ServerFlags.of(sglang_version="0.5.17", gpu="H200")
    return resolved(meant_by(flags, [*start.command, *RANDOM_WEIGHTS])[0])


def prediction(deployment: Deployment) -> MemoryReport:
    return predict(starts_of(deployment, "0")[0])


def told(report: MemoryReport) -> dict[str, Any]:
    names = ("peak_bytes", "reserved_peak_bytes", "allocated_bytes", "reserved_bytes", "non_torch_bytes")
    return {
        "verdict": report.verdict,
        "failed_in": report.run.failed_in,
        "free_at_peak": report.free_at_peak_bytes,
        "error_bar": report.margin_bytes,
        "kv_tokens": report.sizes.kv_tokens,
        "max_running_requests": report.sizes.max_running_requests,
        "mem_fraction_static": report.sizes.mem_fraction_static,
        "phases": {phase.name: {name: getattr(phase, name) for name in names} for phase in report.phases},
    }


@dataclass(frozen=True)
class Measured:
    """Of rank 0: its phases by name, and how it ended."""

    phases: dict[str, dict[str, int]]
    ready: dict[str, Any] | None
    failed_in: str | None
    error: str | None


def measured(folder: Path) -> Measured:
    ranks = [[json.loads(line) for line in file.open()] for file in sorted(folder.glob("rank*.jsonl"))]
    first = ranks[0]
    phases: dict[str, dict[str, int]] = {}
    for line in first:
        phases.setdefault(line.get("phase", ""), line)
    failures = [line for lines in ranks for line in lines if "failed" in line]
    ready = next((line for line in first if line.get("ready")), None)
    failure = failures[0] if failures else {}
    return Measured(phases, ready, failure.get("failed"), failure.get("error"))


@dataclass(frozen=True)
class Error:
    """`allowed`: how far the prediction may be off."""

    what: str
    predicted: int
    measured: int
    allowed: int

    @property
    def within(self) -> bool:
        return abs(self.predicted - self.measured) <= self.allowed


def errors(guess: dict[str, Any], real: Measured) -> Iterator[Error]:
    if real.ready is not None and guess["kv_tokens"]:
        tokens = real.ready["kv_tokens"]
        yield Error("KV tokens", guess["kv_tokens"], tokens, round(TOKENS * tokens))
    for name, phase in guess["phases"].items():
        found = real.phases.get(NAMES.get(name, name))
        if found is None or NAMES.get(name) == "start":
            continue
        if name != "eager buffers":  # SGLang's eager step tunes as well
            peak = found["peak"]
            yield Error(f"{name}: peak", phase["peak_bytes"], peak, max(LEAST, round(SHARE * peak)))
        if name != "eager buffers" or "autotune" not in guess["phases"]:
            outside = found["outside_torch"]
            yield Error(f"{name}: outside torch", phase["non_torch_bytes"], outside, guess["error_bar"])


def verdict(guess: dict[str, Any], real: Measured) -> str:
    """`right`, `inside the error bar`, or `wrong`."""
    fits = guess["verdict"] == "fits"
    if fits == (real.ready is not None):
        return "right"
    is_tight = fits and guess["free_at_peak"] <= guess["error_bar"]
    return "inside the error bar" if is_tight else "wrong"


def _now(start: RealStart, guess: dict[str, Any], real: Measured) -> str | None:
    """What is predicted today of a start that was predicted wrong."""
    if verdict(guess, real) != "wrong":
        return None
    deployment = deployment_of(start)
    report = prediction(deployment)
    return f"{report.verdict}, {report.free_at_peak_bytes / GIB:.2f} GiB free at the peak"


def judged(of_round: str, out: Path) -> list[dict[str, Any]]:
    guesses = json.loads(predictions_of(of_round).read_text())["starts"]
    rows = []
    for start in real_starts(of_round):
        folder = out / start.name
        real = measured(folder) if (folder / "rank0.jsonl").exists() else None
        if real is None or (real.ready is None and real.failed_in is None):
            continue  # not run to its end
        guess = guesses[start.name]
        found = [{**asdict(error), "within": error.within} for error in errors(guess, real)]
        rows.append(
            {
                "name": start.name,
                "gpus": start.gpus,
                "command": shlex.join(start.command),
                "predicted": {"verdict": guess["verdict"], "failed_in": guess["failed_in"]},
                "free_at_peak": guess["free_at_peak"],
                "error_bar": guess["error_bar"],
                "measured": {
                    "fits": real.ready is not None,
                    "failed_in": real.failed_in,
                    "error": real.error,
                },
                "verdict": verdict(guess, real),
                "now": _now(start, guess, real),
                "errors": found,
            }
        )
    return rows


def judged_again(of_round: str) -> list[dict[str, Any]]:
    """What was measured then beside what is predicted today."""
    starts = {start.name: start for start in real_starts(of_round)}
    rows = []
    for row in json.loads(measurements_of(of_round).read_text())["starts"]:
        deployment = deployment_of(starts[row["name"]])
        guess = told(prediction(deployment))
        found = [again for error in row["errors"] if (again := _again(Error(**_known(error)), guess))]
        now = {"free_at_peak": guess["free_at_peak"], "error_bar": guess["error_bar"]}
        fits = guess["verdict"] == "fits"
        is_right = fits == row["measured"]["fits"]
        rows.append({"round": of_round, "name": row["name"], "gpus": row["gpus"], "then": row["error_bar"]})
        rows[-1] |= {**now, "right": is_right, "errors": found}
    return rows


def _known(error: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in error.items() if name != "within"}


def _again(error: Error, guess: dict[str, Any]) -> dict[str, Any] | None:
    """None of a phase that no longer comes."""
    phase, _, figure = error.what.partition(": ")
    if not figure:
        again = replace(error, predicted=guess["kv_tokens"])
    elif phase not in guess["phases"]:
        return None
    elif figure == "peak":
        again = replace(error, predicted=guess["phases"][phase]["peak_bytes"])
    else:
        bytes = guess["phases"][phase]["non_torch_bytes"]
        again = replace(error, predicted=bytes, allowed=guess["error_bar"])
    return {**asdict(again), "within": again.within, "then": error.predicted}


def predicted(of_round: str) -> None:
    guesses = {}
    for start in real_starts(of_round):
        report = prediction(deployment_of(start))
        guesses[start.name] = told(report)
        print(start.name, report.verdict, report.run.failed_in or "", report.free_at_peak_bytes // MIB)
    write_record("", {"starts": guesses}, str(predictions_of(of_round)))


def main() -> None:
    job, *rest = sys.argv[1:]
    of_round = rest.pop(0) if rest else ""
    if job == "commands":
        for start in sorted(real_starts(of_round), key=lambda start: -start.gpus):
            print(json.dumps(asdict(start)))
    elif job == "predict":
        predicted(of_round)
    elif job == "judge":
        write_record("", {"starts": judged(of_round, Path(rest[0]))}, str(measurements_of(of_round)))
    elif job == "again":
        starts = [row for name in known_rounds() for row in judged_again(name)]
        write_record("", {"starts": starts}, str(AGAIN))


if __name__ == "__main__":
    main()
