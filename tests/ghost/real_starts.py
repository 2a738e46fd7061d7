"""The starts that were measured on real GPUs: their commands, their memory, and how they ended."""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.real_starts.predicted import predicted
from runtime.toml import tomllib

ROOT = Path(__file__).resolve().parents[2]
STARTS = ROOT / "benchmarks" / "real_starts" / "starts.toml"
MODELS = ROOT / "benchmarks" / "real_starts" / "models"
RESULTS = ROOT / "benchmarks" / "results"
ROUNDS = ("first", "second", "third", "fourth", "fifth")
SAMPLING = ("--sampling-backend", "pytorch")  # the referee's; the driver adds the rest of its flags
PHASES = {"eager buffers": "eager"}  # a name of the results, and the watched step's
OUTSIDE = "outside torch"
# These starts found tactics that an earlier one had left on their machine. Their results do not say so, but a
# start that tunes keeps FlashInfer's workspace for profiles (195 and 338 MB), and their peaks lack it.
WARM = frozenset(("second/fit-cutlass", "second/fit-cutlass-more", "first/qwen30-dp2-cutlass"))
# Kernels that these found in torch.compile's cache, which starts of one model beside each other fill: their
# peaks lack the buffers beside which the others are timed.
COMPILED = {
    "first/v2-lite": ("triton_poi_fused_copy__mul_sum_*",),
    "first/v2-lite-many-graphs": ("*",),
    "second/v2-lite-2048": ("*_softmax_*", "*_to_copy_*", "*_mul_sum_* x=65536"),
}
_CUT = re.compile(r"-(\d+l|awq|gptq|fp8|dynamic|w\d+a\d+)(?![a-z0-9])")


@dataclass(frozen=True)
class RealStart:
    """One measured start. `outside` is the memory outside torch at the end of each phase, in order."""

    name: str
    model: str
    gpus: int
    flags: tuple[str, ...]
    died_in: str | None
    error: str
    kv_tokens: int | None
    peaks: dict[str, int]
    outside: dict[str, int]

    @property
    def argv(self) -> tuple[str, ...]:
        return ("--model-path", str(MODELS / self.model), *self.flags, *SAMPLING)

    @property
    def warm(self) -> bool:
        return self.name in WARM

    @property
    def compiled(self) -> tuple[str, ...]:
        return COMPILED.get(self.name, ())

    @property
    def ending(self) -> str:
        return f"dies in {self.died_in}" if self.died_in else "ready"

    @property
    def family(self) -> str:
        """Return the model without its depth and quantization, which do not make it another model."""
        return _CUT.sub("", self.model)


def real_starts() -> Iterator[RealStart]:
    asked = tomllib.loads(STARTS.read_text())
    for of_round in ROUNDS:
        results = json.loads((RESULTS / f"real_starts_{of_round}.json").read_text())["starts"]
        commands = {name: text for group in asked[of_round].values() for name, text in group.items()}
        for result in results:
            model, *flags = shlex.split(commands[result["name"]])
            figures = {figure["what"]: figure["measured"] for figure in result["errors"]}
            yield RealStart(
                name=f"{of_round}/{result['name']}",
                model=model,
                gpus=result["gpus"],
                flags=(*shlex.split(asked["common"]), *flags),
                died_in=PHASES.get(result["measured"]["failed_in"], result["measured"]["failed_in"]),
                error=result["measured"]["error"] or "",
                kv_tokens=figures.get("KV tokens"),
                peaks=_of(figures, "peak"),
                outside=_of(figures, OUTSIDE),
            )


def later_starts() -> Iterator[RealStart]:
    """Yield the starts on several GPUs that ran after the ghost had predicted them, without their peaks."""
    for one in predicted():
        yield RealStart(one.name, one.model, one.gpus, one.flags, None, "", None, {}, one.outside)


def _of(figures: dict[str, int], wanted: str) -> dict[str, int]:
    found = {}
    for what, measured in figures.items():
        phase, _, figure = what.partition(": ")
        if figure == wanted:
            found[PHASES.get(phase, phase)] = measured
    return found
