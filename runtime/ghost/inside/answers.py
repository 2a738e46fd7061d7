"""What a missing host function has to answer so that a start goes on. Each answer makes a record inexact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

# How many tactics a module that is not there offers. The real count decides how many are profiled.
TACTICS = 4


class Answer(NamedTuple):
    give: Callable[..., Any]
    why: str


COUNT = Answer(lambda *_: TACTICS, f"the module is not there; it is assumed to offer {TACTICS} tactics")
RUNNER = Answer(lambda *_: None, "the module is not there; its runner does nothing")
CONFIGS = Answer(
    lambda *_: [[one, one] for one in range(TACTICS)],
    f"the module is not there; {TACTICS} configurations are assumed to be valid",
)


def _clusters(size: int = 1, *_: Any) -> int:
    import torch

    return int(torch.cuda.get_device_properties(0).multi_processor_count) // max(1, size)


CLUSTERS = Answer(_clusters, "the module is not there; clusters are assumed to fill every processor")

# By the function's own name, whichever module it stands in.
ANSWERS: dict[str, Answer] = {
    "init": RUNNER,
    "get_tactic_num": COUNT,
    "get_gemm1_tactic_count": COUNT,
    "get_gemm2_tactic_count": COUNT,
    "trtllm_gemm_tactics": COUNT,
    "fp4_gemm_tactic_num": COUNT,
    "fp8_gemm_tactic_num": COUNT,
    "bf16_gemm_tactic_num": COUNT,
    "tgv_gemm_tactic_num": COUNT,
    "get_valid_moe_configs": CONFIGS,
    "trtllm_get_valid_moe_configs": CONFIGS,
    "get_max_active_clusters": CLUSTERS,
}
# Attention modules of this form answer a plan, and how many bytes of it are copied to the device.
PLANNING = "_planabi2"
PLAN = Answer(lambda *_: (None, 0), "the module is not there; its plan is assumed to be empty")
UNKNOWN = "the module is not there, so what its host code allocates and answers is not known"


def answer_of(module: str, name: str) -> Answer | None:
    """What a function of a missing module answers; None where nothing is known of it."""
    if name == "plan" and module.endswith(PLANNING):
        return PLAN
    return ANSWERS.get(name)
