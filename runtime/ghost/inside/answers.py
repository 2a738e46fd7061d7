"""The answers of missing host functions with which a start can continue. Each makes the record inexact."""

from collections.abc import Callable
from typing import Any, NamedTuple

# The number of tactics assumed for a missing module. The real number decides how many are profiled.
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

# By the name of the function, in any module.
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
# Attention modules return a plan; those with this suffix also how many bytes of it are copied to the device.
PLANNING, EMPTY = "_planabi2", "the module is not there; its plan is assumed to be empty"
PLAN, COUNTED = Answer(lambda *_: [], EMPTY), Answer(lambda *_: (None, 0), EMPTY)
UNKNOWN = "the module is not there, so what its host code allocates and answers is not known"


def answer_of(module: str, name: str) -> Answer | None:
    """Return the answer of a missing module's function, or None if none is known."""
    if name == "plan":
        return COUNTED if module.endswith(PLANNING) else PLAN
    return ANSWERS.get(name)
