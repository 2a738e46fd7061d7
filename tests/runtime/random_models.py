"""Random tiny models of a family, saved by transformers and served by us: equal logits, or a refusal by name.

python -m tests.runtime.random_models --family qwen3 --count 30 --seed 5
"""

from __future__ import annotations

import argparse
import copy
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from runtime.forward.comm import VirtualCommunicator
from runtime.server.errors import ConfigError
from runtime.server.parallel_config import ParallelConfig
from tests.runtime.families import TINY, make_reference, prompts, reference_logits, save
from tests.runtime.generation import Generation, make_runtime

TOLERANCE = 1e-4
LARGE = 32.0  # logits beyond it, of tied embeddings: transformers itself is off by 1e-4 there, from its fp64
STEPS = 8
_ROUNDINGS = 4
_NULLABLE = (
    "sliding_window",
    "q_lora_rank",
    "rope_parameters",
    "mlp_layer_types",
    *("linear_lower_bound", "indexer_types"),
    *("swiglu_limits", "swiglu_limits_shared", "attention_value_scale"),
)
_LENGTHS = (21, 13, 17)


@dataclass(frozen=True, slots=True)
class Outcome:
    told: dict[str, Any]
    said: str  # "equal", or who refused and why
    worst: float = 0.0

    @property
    def kind(self) -> str:
        return self.said.partition(":")[0]


def draw(family: str, dice: random.Random) -> dict[str, Any]:
    """None is said of what may be none, and leaves out what else there is."""
    drawn = {name: dice.choice(choices) for name, choices in TINY[family].space.items()}
    told = {name: value for name, value in drawn.items() if value is not None or name in _NULLABLE}
    told |= {name: told[other] for name, other in TINY[family].alike.items() if name not in told}
    return copy.deepcopy(told)  # transformers writes into what it is given


Serve = Callable[[Path, list[list[int]]], dict[int, list[torch.Tensor]]]


def alone(folder: Path, texts: list[list[int]]) -> dict[int, list[torch.Tensor]]:
    one = ParallelConfig()
    return Generation(folder, one, make_runtime(), VirtualCommunicator(one)).run(texts, STEPS)


def compare(
    family: str,
    told: dict[str, Any],
    folder: Path,
    lengths: Sequence[int] = _LENGTHS,
    serve: Serve = alone,
) -> Outcome:
    """`serve` answers each text by a row of logits for its last tokens."""
    try:
        model = make_reference(family, **told)
        texts = prompts(*lengths)
        want = [reference_logits(model, text)[-STEPS - 1 :] for text in texts]
    except Exception as error:
        return Outcome(told, f"transformers refused: {type(error).__name__}: {error}")
    save(model, folder)
    try:
        rows = serve(folder, texts)
    except ConfigError as error:
        return Outcome(told, f"refused by name: {error}")
    worst = max(float((torch.stack(rows[i]) - want[i]).abs().max()) for i in range(len(texts)))
    largest = max(float(rows_of_one.abs().max()) for rows_of_one in want)
    if worst <= TOLERANCE * max(1.0, largest / LARGE):
        return Outcome(told, "equal", worst)
    own = own_error(model, texts, want)
    if worst <= 2 * own:
        return Outcome(told, f"beyond fp32: transformers is {own:.1e} off from its own fp64", worst)
    return Outcome(told, f"DIFFERENT: by {worst:.3g}", worst)


def own_error(model: Any, texts: Sequence[list[int]], want: Sequence[torch.Tensor]) -> float:
    """How far transformers' answers, the last rows of each text, are from what it answers in fp64, also by
    weights whose last bit is another: what one rounding does to a sum, another does to the next."""
    whole = copy.deepcopy(model).double()
    for config in (whole.config, whole.config.get_text_config()):
        config._experts_implementation = "eager"  # whose others know no fp64
    torch.set_default_dtype(torch.float64)
    try:
        rows = _last_rows(whole, texts, want)
    finally:
        torch.set_default_dtype(torch.float32)
    answers = [want, *(_rounded_otherwise(model, texts, want, seed) for seed in range(_ROUNDINGS))]
    return max(float((a - b).abs().max()) for told in answers for a, b in zip(rows, told, strict=True))


def _rounded_otherwise(
    model: Any, texts: Sequence[list[int]], want: Sequence[torch.Tensor], seed: int
) -> list[torch.Tensor]:
    other, dice = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    for weight in other.parameters():
        noise = torch.rand(weight.shape, generator=dice).mul_(2).sub_(1)
        weight.data.mul_(1 + noise * torch.finfo(torch.float32).eps)
    return _last_rows(other, texts, want)


def _last_rows(model: Any, texts: Sequence[list[int]], want: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [reference_logits(model, text)[-len(rows) :] for text, rows in zip(texts, want, strict=True)]


def outcomes(family: str, count: int, seed: int) -> Iterator[Outcome]:
    dice = random.Random(f"{family} {seed}")
    for _ in range(count):
        with tempfile.TemporaryDirectory() as folder:
            yield compare(family, draw(family, dice), Path(folder))


def main() -> int:
    asked = arguments(__doc__)
    return report(outcomes, asked.family or TINY, asked.count, asked.seed)


def arguments(what: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--family", choices=TINY, action="append")
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def report(
    outcomes: Callable[[str, int, int], Iterator[Outcome]], families: Iterable[str], count: int, seed: int
) -> int:
    differ = 0
    transformers.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()
    for family in families:
        found = list(outcomes(family, count, seed))
        counts, worst = Counter(one.kind for one in found), max(one.worst for one in found)
        print(f"{family:14} {dict(counts)}, worst {worst:.1e}", flush=True)
        for one in found:
            if one.kind == "DIFFERENT":
                differ += 1
                print(f"  {one.said}: {one.told}")
        for said, many in Counter(one.said for one in found if one.kind != "equal").most_common():
            print(f"  {many} x {said[:160]}")
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
