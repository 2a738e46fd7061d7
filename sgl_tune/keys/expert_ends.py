"""Where servers end whose experts are Triton's kernels on every backend.

srt/models/afmoe.py, deepseek.py, dbrx.py, xverse_moe.py: until 0.5.23 they hand their kernels whatever the
backend's own would be given in place of a router's choice (srt/layers/moe/topk.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from runtime.server.call_rules import runs_by_triton

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

_CHOOSE_THEMSELVES = ("flashinfer_trtllm", "experimental_sgl_trtllm", "flashinfer_mxfp4", "triton_kernel")
_CHOICE_SINCE = (0, 5, 23)


def ends_of_experts(deployment: Deployment) -> Iterator[str]:
    server, model = deployment.server, deployment.model
    chosen = (
        runs_by_triton(model) and model.num_moe_layers and server.moe_runner_backend in _CHOOSE_THEMSELVES
    )
    if chosen and server.release.number < _CHOICE_SINCE:
        yield (
            f"--moe-runner-backend {server.moe_runner_backend} before 0.5.23 chooses no experts for Triton's "
            f"kernels, which SGLang's class of {model.model_type} runs in any case"
        )
