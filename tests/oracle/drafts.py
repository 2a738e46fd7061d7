"""Asks SGLang's own classes again how large the drafts of tests/memory/data/drafts.json are; or random ones.

python -m tests.oracle.drafts [--record]
python -m tests.oracle.drafts --count 20 --seed 5 [--draft LlamaForCausalLMEagle] [--release 0.5.12]
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from runtime.forward.comm import VirtualCommunicator
from runtime.models.own_draft import OwnDraftModel
from runtime.server.checkpoint import Checkpoint
from runtime.server.config import RuntimeConfig
from runtime.server.errors import ConfigError
from runtime.server.own_draft import OwnDraft
from runtime.server.parallel_config import ParallelConfig
from runtime.server.speculative_config import SpeculativeConfig
from tests.oracle.drawn_drafts import KINDS, drawn_draft
from tests.oracle.inside import run_inside
from tests.oracle.wheels import WORK, wheel_of

HF = dict[str, Any]
RECORDED = Path(__file__).parents[1] / "memory/data/drafts.json"
_META = torch.device("meta")
_RUNTIME = RuntimeConfig(speculative=SpeculativeConfig("EAGLE3"))


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.oracle.drafts")
    options.add_argument("--work", type=Path, default=WORK, help="where the wheels are kept")
    options.add_argument("--record", action="store_true")
    options.add_argument("--count", type=int, help="random ones of each class, in place of those recorded")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--draft", action="append", choices=[*KINDS])
    options.add_argument("--release", default="0.5.23")
    asked = options.parse_args()
    if asked.count is None:
        _ask_recorded(asked)
    else:
        _ask_random(asked)


def _ask_recorded(asked: argparse.Namespace) -> None:
    recorded = json.loads(RECORDED.read_text())
    cases = [(draft, ranks) for draft in recorded["drafts"] for ranks in draft["bytes"]]
    files = [(config_of(recorded, draft), int(ranks)) for draft, ranks in cases]
    answers = _asked(files, asked)
    otherwise = [
        case for case, answer in zip(cases, answers, strict=True) if case[0]["bytes"][case[1]] != answer
    ]
    print(f"{len(cases)} ranks, {len(otherwise)} otherwise than recorded")
    if asked.record:
        for (draft, ranks), answer in zip(cases, answers, strict=True):
            draft["bytes"][ranks] = answer
        RECORDED.write_text(_text(recorded))


def _ask_random(asked: argparse.Namespace) -> None:
    dice, said = random.Random(asked.seed), Counter[str]()
    kinds = [kind for kind in asked.draft or KINDS for _ in range(asked.count)]
    files = [(drawn_draft(kind, dice), dice.choice((1, 1, 2, 4, 8))) for kind in kinds]
    ours = [_ours(*file) for file in files]
    for own, answer, (config, tp) in zip(ours, _asked(files, asked), files, strict=True):
        verdict = _verdict(own, answer)
        said[verdict.partition(":")[0]] += 1
        if verdict != "equal":
            print(f"tp {tp} {verdict}\n  {json.dumps(config)}")
    print(asked.release, dict(said))


def _asked(files: list[tuple[HF, int]], asked: argparse.Namespace) -> list[Any]:
    """A class's bytes, or what it ends with."""
    lines = [json.dumps({"config": config, "tp": tp, "rank": tp - 1, "draft": True}) for config, tp in files]
    work = asked.work.absolute()
    told = run_inside("read_held", wheel_of(asked.release, work), "H200", work, lines, 1800, "may-end")
    return [sum(one) if isinstance(one, list) else one for one in told]


def _ours(config: HF, tp: int) -> int | str:
    try:
        return bytes_of_rank(config, tp)
    except ConfigError as error:
        return error.message


def bytes_of_rank(config: HF, tp: int) -> int:
    """The last of so many."""
    model, parallel = Checkpoint(config).model_config(), ParallelConfig(tp=tp)
    own = OwnDraft(model, _RUNTIME, parallel, (), 1)
    draft = OwnDraftModel(own, VirtualCommunicator(parallel, tp - 1), _META)
    return sum(one.nbytes for one in draft.parameters())


def _verdict(own: int | str, answer: Any) -> str:
    if isinstance(own, str) and isinstance(answer, str):
        return f"both end: {own}; {answer}"
    if isinstance(own, str):
        return f"refused: {own}"
    if isinstance(answer, str):
        return f"SGLang ends: {answer}"
    return "equal" if own == answer else f"different: {own - answer} bytes more than SGLang's"


def config_of(recorded: HF, draft: HF) -> HF:
    """What is null there, and in none of SGLang's drafts, is not told."""
    told = {**recorded["all"], **draft["config"]}
    return {name: value for name, value in told.items() if value != "not told"}


def _text(recorded: HF) -> str:
    """A draft a line."""
    heads = ",\n".join(f' "{name}": {json.dumps(recorded[name])}' for name in ("source", "all"))
    drafts = ",\n".join(f"  {json.dumps(draft)}" for draft in recorded["drafts"])
    return f'{{\n{heads},\n "drafts": [\n{drafts}\n ]\n}}\n'


if __name__ == "__main__":
    main()
