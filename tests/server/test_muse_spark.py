"""What SGLang makes of servers of Muse Spark, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.asked import Asked, changed
from runtime.server.checkpoint import Checkpoint
from runtime.server.errors import ConfigError
from runtime.server.gpus import find_gpu
from runtime.server.releases import NEWEST
from runtime.server.resolve import resolve
from runtime.server.shape import Server
from tests.server.asking import model

_MUSE = Checkpoint({**model("llama").hf, "architectures": ["MuseSparkForConditionalGeneration"]})
_TRTLLM = {"moe_runner_backend": "flashinfer_trtllm"}
_SPREAD = {"tp_size": 8, "ep_size": 8, "enable_layernorm_sp": True, **_TRTLLM}
_ONE_KERNEL = {**_SPREAD, "enable_megamoe_for_layernorm_sp": True}


def _server(asked: dict[str, Any]) -> Server:
    told = changed(Asked(), {"model_path": "models/m", **asked})
    return resolve(told, _MUSE, None, find_gpu("B200"), NEWEST, {})


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({**_ONE_KERNEL, "ep_size": 1}, "--ep-size 1 is not that of --tp-size 8, 4 or 8"),
        ({**_ONE_KERNEL, "quantization": "fp8"}, "needs --quantization modelopt_fp4"),
        (_SPREAD, "needs --quantization modelopt_fp4"),
        ({**_SPREAD, "quantization": "modelopt_fp4"}, "does not go with --moe-a2a-backend none"),
        ({**_ONE_KERNEL, "moe_runner_backend": "auto"}, "needs --moe-runner-backend flashinfer_trtllm"),
        ({**_ONE_KERNEL, "enable_mixed_chunk": True}, "does not go with --enable-mixed-chunk"),
        ({**_ONE_KERNEL, "chunked_prefill_size": -1}, "needs breakable prefill graphs as long as"),
        ({**_ONE_KERNEL, "cuda_graph_max_bs_prefill": 64}, "needs breakable prefill graphs as long as"),
        (
            {**_ONE_KERNEL, "chunked_prefill_size": 65600, "disable_prefill_cuda_graph": True},
            "a rank's part of --chunked-prefill-size 65600 is more than",
        ),
        ({**_ONE_KERNEL, "tp_size": 2, "moe_a2a_backend": "flashinfer"}, "as many attention-DP groups"),
        (
            {"language_only": True, "enable_adaptive_dispatch_to_encoder": True, "encoder_urls": ("a",)},
            "Muse Spark has no encoder under --language-only",
        ),
    ],
)
def test_what_it_does_not_do_is_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _server(asked)
    assert message in caught.value.message


def test_its_one_kernel_is_captured_breakable_alone() -> None:
    assert _server({**_ONE_KERNEL, "moe_a2a_backend": "flashinfer"}).prefill_graphs
    assert not _server({**_ONE_KERNEL, "cuda_graph_backend_prefill": "full"}).prefill_graphs


@pytest.mark.parametrize(("asked", "place"), [({}, "whole"), ({"mm_enable_dp_encoder": False}, "split")])
def test_its_tower_is_whole_under_attention_dp(asked: dict[str, Any], place: str) -> None:
    groups = {"tp_size": 4, "dp_size": 2, "enable_dp_attention": True}
    assert _server({**groups, **asked}).encoder == place
