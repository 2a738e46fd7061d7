"""Deployments by chance: commands of the oracle's generators on published checkpoints and on those of every
family, some with members of their config changed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from runtime.server.backends import BACKENDS
from runtime.server.decoders.known import model_config
from runtime.server.flashinfer import READ
from runtime.server.gpus import CPU, GPUS
from runtime.server.releases import RELEASES
from runtime.server.resolve import ENVIRONMENT
from tests.book.cases import Case, checkpoint_of, checkpoints
from tests.oracle.combinations import combinations
from tests.oracle.commands import Command, random_commands
from tests.oracle.machine import USUAL_GPUS
from tests.oracle.published import FOLDER, MADE_UP, published
from tests.oracle.rare import rare_commands
from tests.oracle.record import ARCHITECTURES, COMBINATIONS, EDGES, RARE, RECORDED, read, refusals
from tests.oracle.weights import METHODS

_VALUES = ("1", "0", "128", "1024", "true", "x", "bfloat16")
_MORE = (
    ("--nnodes", "2"),
    ("--nnodes", "2", "--node-rank", "1"),
    ("--dp-size", "2"),
    ("--speculative-algorithm", "EAGLE"),
    ("--speculative-algorithm", "NEXTN", "--max-running-requests", "48"),
)


_TUNED_ON = ("B200", "B200", "B300", "GB200", "RTX PRO 6000", "H200", "H100")
_OF_EXPERTS = (
    *("n_routed_experts", "num_experts", "moe_intermediate_size", "num_experts_per_tok", "n_shared_experts"),
    *("shared_expert_intermediate_size", "norm_topk_prob", "intermediate_size", "first_k_dense_replace"),
)


@cache
def _with_experts() -> list[str]:
    return [name for name in checkpoints() if model_config(checkpoint_of(name).hf).num_moe_layers]


class Drawing:
    def __init__(self, seed: int, count: int) -> None:
        self._chance = random.Random(f"book {seed}")
        releases = [row.version for row in RELEASES]
        kinds = (random_commands, rare_commands, combinations)
        self._drawn = [one for kind in kinds for one in kind(seed, count // 4, releases, USUAL_GPUS)]
        paths = (ARCHITECTURES, COMBINATIONS, EDGES, RARE, RECORDED)
        self._kept = [one for path in paths for one, _ in read(path)] + [one for one, _ in refusals()]
        self._models = [name for name in published() if not name.startswith(MADE_UP)]
        self._quantized = [*json.loads((FOLDER / "quantizations.json").read_text()).values()]

    def case(self) -> Case:
        chance, kind = self._chance, self._chance.random()
        if kind > 0.75:
            return self._tuned()
        if kind < 0.45:
            one = _case(chance.choice(self._kept if kind < 0.2 else self._drawn))
        else:
            one = self._elsewhere(_case(chance.choice(self._drawn)))
        if chance.random() < 0.12:
            one = replace(one, gpu=chance.choice((*GPUS, CPU)).name)
        if chance.random() < 0.06:
            names = chance.sample(ENVIRONMENT, chance.choice((1, 1, 2, 3)))
            one = replace(one, environ={name: chance.choice(_VALUES) for name in names})
        if chance.random() < 0.08:
            one = replace(one, flashinfer=chance.choice(READ))
        return replace(one, argv=one.argv + chance.choice(_MORE)) if chance.random() < 0.05 else one

    def _tuned(self) -> Case:
        """Experts by a backend that FlashInfer tunes, split over ranks in one way or another."""
        chance = self._chance
        model, ranks = chance.choice(_with_experts()), chance.choice((1, 2, 4, 8, 8, 16))
        backend = chance.choice([row for row in BACKENDS.values() if row.calls])
        argv = ["--model-path", f"models/{model}", "--tp-size", str(ranks)]
        argv += ["--moe-runner-backend", backend.name]
        for likely, name, values in (
            (0.4, "--ep-size", ("1", "2", str(ranks), str(ranks))),
            (0.3, "--moe-a2a-backend", ("flashinfer", "deepep", "megamoe", "mori")),
            (0.7, "--quantization", [name for name in backend.takes or ("fp8", "modelopt_fp4") if name]),
            (0.3, "--dp-size", ("2", str(ranks), str(ranks))),
        ):
            if chance.random() < likely:
                argv += [name, chance.choice(values)]
        argv += ["--enable-dp-attention"] if "--dp-size" in argv else []
        changes: dict[str, Any] = {}
        if "--quantization" not in argv and chance.random() < 0.5:
            section = chance.choice([*METHODS.values()])[1](chance)
            changes["quantization_config"] = chance.choice((section, chance.choice(self._quantized)))
        for name in chance.sample(_OF_EXPERTS, chance.choice((0, 0, 1, 2))):
            value = checkpoint_of(model).hf.get(name)
            if isinstance(value, int):
                changes[name] = not value if isinstance(value, bool) else chance.choice((1, value * 2, 256))
        return Case(chance.choice(RELEASES).version, chance.choice(_TUNED_ON), model, tuple(argv), changes)

    def _elsewhere(self, one: Case) -> Case:
        """On another checkpoint, quantized or changed."""
        chance = self._chance
        model = chance.choice([*checkpoints()] if chance.random() < 0.75 else self._models)
        argv = [*one.argv]
        argv[argv.index("--model-path") + 1] = f"models/{model}"
        changes: dict[str, Any] = {}
        if chance.random() < 0.3:
            section = chance.choice([*METHODS.values()])[1](chance)
            changes["quantization_config"] = chance.choice((section, chance.choice(self._quantized)))
        if chance.random() < 0.55:
            changes |= self._changed({**checkpoint_of(model).hf, **changes})
        return replace(one, model=model, argv=tuple(argv), changes=changes)

    def _changed(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """A few members, those of sections too; None leaves one out."""
        chance, found = self._chance, dict[str, Any]()
        for name in chance.sample(sorted(config), min(len(config), chance.choice((1, 1, 2, 3)))):
            value = config[name]
            if isinstance(value, Mapping) and value and chance.random() < 0.8:
                inner = chance.choice(sorted(value))
                found[name] = {**value, inner: self._other(value[inner])}
            else:
                found[name] = self._other(value)
        return found

    def _other(self, value: Any) -> Any:
        chance = self._chance
        if chance.random() < 0.15:
            return None
        if isinstance(value, bool):
            return not value
        if isinstance(value, (int, float)):
            return chance.choice((value + 1, value - 1, value * 2, value // 2, 0, -1, 1, "x"))
        if isinstance(value, str):
            return chance.choice((value + "x", "", "silu", "linear", "yarn", "sigmoid", "softmax", 5))
        if isinstance(value, list):
            return chance.choice((value[:-1], value[1:], value[::-1], [], value + value[:1], "x"))
        return chance.choice((1, 0, True, "x", 64, [64, 128], 0.5, {}))


def drawn(seed: int, count: int) -> Iterator[Case]:
    drawing = Drawing(seed, count)
    return (drawing.case() for _ in range(count))


def _case(command: Command) -> Case:
    return Case(command.release, command.gpu, command.model, command.argv)
