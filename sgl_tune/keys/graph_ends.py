"""Where a server ends at graphs of prefills, whatever its model is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

_MIX = ("EAGLE", "EAGLE3", "DFLASH", "DSPARK")  # supports_mixed_chunk of srt/speculative/spec_info.py


def ends_of_graphs(deployment: Deployment) -> Iterator[str]:
    """srt/model_executor/runner/prefill_cuda_graph_runner.py, since 0.5.19."""
    server, asked = deployment.server, deployment.server.asked
    drafts = server.speculative
    mixes = asked.enable_mixed_chunk and (drafts is None or drafts.algorithm in _MIX)
    is_late = server.release.number >= (0, 5, 19)
    whole = server.compiles_prefills or server.whole_prefills
    if is_late and mixes and asked.dllm_algorithm is None and server.prefill_graphs and whole:
        yield (
            "--enable-mixed-chunk goes with no graphs of prefills but breakable ones: "
            "--cuda-graph-backend-prefill breakable"
        )
