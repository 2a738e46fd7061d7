"""The defaults that SGLang's start resolves from the GPU's memory: figures of its own arithmetic."""

from typing import Any

import pytest

from runtime.server.shape import Server
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment

H200, B200 = "H200", "B200"


def _server(gpu: str, **flags: Any) -> Server:
    target = {"gpu": gpu, "flashinfer_version": "0.7.2"}
    return resolve_deployment(ServerFlags.of(**{**target, **flags})).server


@pytest.mark.parametrize(
    ("gpu", "flags", "fraction"),
    [
        (H200, {"model_path": "Qwen3-30B-A3B"}, 0.903),
        # 512 + 1.5 x 8192 + 1024 + 2 x 512 + 8 x 58 graphs
        (H200, {"model_path": "Qwen3-30B-A3B", "tp": 8}, 0.893),
        # the guess is made on the whole chunk: 512 + 1.5 x 8192 + 1024 + 2 x 512 + 512 x 8 x 4.5 + 8 x 58
        (H200, {"model_path": "Qwen3-30B-A3B", "tp": 8, "dp": 8, "enable_dp_attention": True}, 0.765),
        # MLA: 512 + 1.5 x 16384 + 1024 + 2 x 512 + 512 x 8 x 4.5 + 1536
        (B200, {"model_path": "GLM-5.1-FP8", "tp": 8, "dp": 8, "enable_dp_attention": True}, 0.743),
    ],
)
def test_an_unset_mem_fraction_is_sglangs(gpu: str, flags: dict[str, Any], fraction: float) -> None:
    assert _server(gpu, **flags).runtime.mem_fraction_static == fraction
