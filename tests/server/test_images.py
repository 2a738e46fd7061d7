"""What is kept free for images, as SGLang's own function answered for the same arguments and variables."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.asked import Asked
from runtime.server.checkpoint import Checkpoint
from runtime.server.gpus import find_gpu
from runtime.server.releases import release_named
from runtime.server.resolve import resolve
from runtime.server.shape import Server
from runtime.server.uncounted import uncounted
from tests.server.servers import B200, H200, LLAMA, checkpoint

QWEN = checkpoint("Qwen3VLForConditionalGeneration", "qwen3_vl", vision_config={"depth": 27})
LLAMA_4 = checkpoint("Llama4ForConditionalGeneration", "llama4")
_CACHE, _POOL = "SGLANG_VLM_CACHE_SIZE_MB", "SGLANG_MM_FEATURE_CACHE_MB"
_IPC = "SGLANG_USE_CUDA_IPC_TRANSPORT"
_ON_GPU = {"mm_feature_transport": "cuda_ipc"}
_SEES = {"enable_multimodal": True}


def _server(
    model: dict[str, Any],
    flags: dict[str, Any],
    environ: dict[str, str],
    version: str = "0.5.23",
    gpu: str = H200,
) -> Server:
    asked, release = Asked(model_path="m", **flags), release_named(version).release
    return resolve(asked, Checkpoint(model), None, find_gpu(gpu), release, environ)


@pytest.mark.parametrize(
    ("model", "flags", "environ", "mib"),
    [
        (QWEN, {}, {}, 1024),
        (QWEN, {"max_running_requests": 400}, {}, 3072),
        (QWEN, {"mm_feature_transport": "cpu"}, {}, 0),
        (QWEN, {"mm_preprocess_cache_size_mb": 10}, {}, 0),
        (QWEN, {}, {_CACHE: "50"}, 50),
        (QWEN, {**_ON_GPU, "max_running_requests": 500}, {_CACHE: "50"}, 1074),
        (QWEN, {}, {_IPC: "0"}, 1024),
        (LLAMA_4, {}, {}, 0),
        (LLAMA_4, _SEES, {}, 100),
        (LLAMA_4, {**_SEES, **_ON_GPU}, {}, 1124),
        (LLAMA_4, _SEES, {_IPC: "1", _POOL: "64"}, 164),
        (LLAMA, {}, {}, 0),
    ],
)
def test_a_server_keeps_so_much_free(
    model: dict[str, Any], flags: dict[str, Any], environ: dict[str, str], mib: int
) -> None:
    server = _server(model, flags, environ)
    assert server.runtime.images_mib == mib
    assert any("images on their way" in what for what in uncounted(server)) == (mib > 100)


@pytest.mark.parametrize(("version", "mib"), [("0.5.17", 0), ("0.5.18", 100), ("0.5.20", 1024)])
def test_since_when(version: str, mib: int) -> None:
    assert _server(QWEN, {}, {}, version).images_mib == mib


def test_qwen_has_its_own_way_on_hopper_alone() -> None:
    assert _server(QWEN, {}, {}, gpu=B200).images_mib == 100
