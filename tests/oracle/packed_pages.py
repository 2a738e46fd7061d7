"""What tokens cost MiniMax-M3.1 on Blackwell, and what its pool holds, by SGLang's own classes: recorded for
the tests.

python -m tests.oracle.packed_pages
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

from tests.memory.checkpoints import DATA
from tests.oracle.inside import run_inside
from tests.oracle.published import published
from tests.oracle.wheels import WORK, wheel_of

RECORDED = DATA / "sglang_packed_pages.json"
_STAGES = (0, 60), (0, 1), (17, 60)
_ROUTED = ["--moe-runner-backend", "flashinfer_trtllm_routed"]


def all_chosen(config: dict[str, Any], **sparse: Any) -> dict[str, Any]:
    """Its layers all choose what they see, as kernels of Blackwell have it."""
    text = config["text_config"]
    yes = [1] * text["num_hidden_layers"]
    lists = {"sparse_attention_freq": yes, "sparse_disable_index_value": yes}
    told = {**text["sparse_attention_config"], **lists, **sparse}
    return {**config, "text_config": {**text, "sparse_attention_config": told}}


def served() -> dict[str, Any]:
    return all_chosen(published()["MiniMaxAI/MiniMax-M3.1-NVFP4"].config)


def main() -> None:
    options = argparse.ArgumentParser(
        prog="python -m tests.oracle.packed_pages", description=(__doc__ or "")[:60]
    )
    options.add_argument("--release", default="0.5.23")
    options.add_argument("--work", type=Path, default=WORK, help="where the wheels are kept")
    asked = options.parse_args()
    cases = [
        {"tp": tp, "stage": stage, "tokens": 128 * (100 + 7 * tp) + tp}
        for tp, stage in itertools.product((1, 2, 4, 8, 16), _STAGES)
    ]
    lines = [json.dumps({**case, "config": served(), "argv": _ROUTED}) for case in cases]
    wheel, work = wheel_of(asked.release, asked.work.absolute()), asked.work.absolute()
    answers = run_inside("read_packed_pages", wheel, "B200", work, lines, 600)
    rows = [{**case, "answer": answer} for case, answer in zip(cases, answers, strict=True)]
    RECORDED.write_text("[\n" + ",\n".join(f" {json.dumps(row)}" for row in rows) + "\n]\n")


if __name__ == "__main__":
    main()
