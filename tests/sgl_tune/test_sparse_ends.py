"""Servers that end at a kernel of sparse attention, and what is followed of flags that choose one."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.keys.starts import never_starts
from tests.sgl_tune.ends import published_server

DEEPSEEK, GLM = "deepseek-ai/DeepSeek-V3.2", "zai-org/GLM-5.1"
FLASH = "a/glm-5.3-flash-as-its-classes-have-it"
Q8 = "--dsa-prefill-backend flashmla_sparse_q8 --dsa-decode-backend flashmla_kv"
TRITON = "--dsa-prefill-backend triton_sparse_mla"
KEPT = "--mamba-track-interval 1024"  # tokens between states, as many as a page
NOTHING = "--disable-cuda-graph --skip-server-warmup"  # decodes nothing before it is asked
FP8, BF16 = "--kv-cache-dtype fp8_e4m3", "--kv-cache-dtype bfloat16"


def _asked(folder: Path, model: str, release: str, gpu: str, words: str) -> Deployment:
    layout = "" if "--tp-size" in words else "--tp-size 8"
    return published_server(folder, model, release, gpu, f"{layout} {words}")


@pytest.mark.parametrize(
    ("model", "release", "gpu", "words", "why"),
    [
        (DEEPSEEK, "0.5.23", "H200", f"{Q8} {FP8}", None),
        (DEEPSEEK, "0.5.23", "H200", f"{Q8} {BF16} --dsa-decode-backend fa3", None),
        (DEEPSEEK, "0.5.16", "H200", f"{Q8} {BF16}", "reads fp8_e4m3 alone"),
        (DEEPSEEK, "0.5.16", "H200", f"{Q8} {FP8}", None),
        (DEEPSEEK, "0.5.23", "B200", f"{Q8} {BF16}", "has no kernels for sm100"),
        (
            DEEPSEEK,
            "0.5.23",
            "H200",
            f"{Q8} {FP8} --dsa-decode-backend trtllm {NOTHING}",
            "trtllm's has none",
        ),
        (DEEPSEEK, "0.5.23", "H200", f"{Q8} {FP8} --enable-mixed-chunk", "--enable-mixed-chunk"),
        (DEEPSEEK, "0.5.21", "H200", f"{Q8} {FP8} --enable-mixed-chunk", None),
        (FLASH, "0.5.23", "H200", f"{Q8} {FP8} --dsa-decode-backend fa3 {KEPT}", "keys without rope"),
        (DEEPSEEK, "0.5.23", "H200", "--dsa-decode-backend flashmla_sparse_q8", "prefills alone"),
        (DEEPSEEK, "0.5.17", "B200", "--dsa-decode-backend flashinfer_sparse_mla", "is for GLM's"),
        (GLM, "0.5.17", "RTX PRO 6000", "", None),
        (GLM, "0.5.17", "RTX PRO 6000", "--dsa-decode-backend trtllm", "has no trtllm"),
        (GLM, "0.5.17", "RTX PRO 6000", f"--dsa-decode-backend trtllm {BF16}", None),
        (GLM, "0.5.16", "RTX PRO 6000", "--dsa-decode-backend trtllm", None),
        (GLM, "0.5.23", "RTX PRO 6000", TRITON, None),
        (GLM, "0.5.23", "H200", TRITON, None),
        (DEEPSEEK, "0.5.23", "H200", f"{TRITON} --tp-size 2", "32 heads a rank at most, and here are 64"),
        (FLASH, "0.5.23", "H200", f"{TRITON} {KEPT}", "takes no tokens beside pools"),
        (DEEPSEEK, "0.5.23", "H200", f"{TRITON} --dsa-triton-union 2", None),
        (DEEPSEEK, "0.5.23", "H200", f"{TRITON} --dsa-triton-union 4", "makes 64 rows of 16"),
        (DEEPSEEK, "0.5.16", "H200", f"--dsa-decode-backend tilelang {FP8}", "reads no fp8_e4m3"),
        (DEEPSEEK, "0.5.16", "H200", "--dsa-decode-backend aiter", "no NVIDIA GPU has"),
        (
            DEEPSEEK,
            "0.5.22",
            "B200",
            f"{BF16} --dsa-decode-backend fa3",
            "on fa3, which has no kernels for sm100",
        ),
        (DEEPSEEK, "0.5.22", "B200", f"{BF16} --dsa-prefill-backend fa3", None),
        (
            DEEPSEEK,
            "0.5.22",
            "H200",
            f"{BF16} --dsa-decode-backend trtllm",
            "on trtllm, which has no kernels",
        ),
        (DEEPSEEK, "0.5.22", "B200", f"{BF16} {NOTHING} --dsa-decode-backend fa3", None),
        (DEEPSEEK, "0.5.22", "B200", f"{BF16} --disable-cuda-graph --dsa-decode-backend fa3", "on fa3"),
    ],
)
def test_a_kernel_is_of_its_gpu_and_cache(
    model: str, release: str, gpu: str, words: str, why: str | None, tmp_path: Path
) -> None:
    found = never_starts(_asked(tmp_path, model, release, gpu, words))
    assert found is None if why is None else found is not None and why in found


@pytest.mark.parametrize(
    ("release", "gpu", "words", "packs"),
    [
        ("0.5.23", "H200", FP8, True),
        ("0.5.23", "B200", FP8, False),
        ("0.5.23", "B200", f"{FP8} --dsa-prefill-backend flashmla_kv --dsa-decode-backend flashmla_kv", True),
        ("0.5.23", "H200", f"{FP8} --dsa-prefill-backend trtllm", False),
        ("0.5.23", "H200", f"{FP8} --dsa-prefill-backend trtllm --disaggregation-mode decode", True),
        ("0.5.19", "H200", f"{FP8} --dsa-prefill-backend trtllm --disaggregation-mode decode", False),
        ("0.5.22", "H200", f"{FP8} --dsa-prefill-backend tilelang --dsa-decode-backend tilelang", False),
        ("0.5.12", "B200", f"{FP8} --nsa-prefill-backend flashmla_kv --nsa-decode-backend fa3", True),
    ],
)
def test_latents_lie_as_their_kernels_read_them(
    release: str, gpu: str, words: str, packs: bool, tmp_path: Path
) -> None:
    found = _asked(tmp_path, DEEPSEEK, release, gpu, words)
    assert found.runtime.packs_latents == packs
    assert "-backend" not in found.not_modelled


def test_the_kernel_of_glm_on_sm120_packs_and_counts_nothing(tmp_path: Path) -> None:
    told = [_asked(tmp_path, GLM, release, "RTX PRO 6000", FP8).runtime for release in ("0.5.16", "0.5.17")]
    assert [one.packs_latents for one in told] == [False, True]
    assert [one.workspaces.has_sparse for one in told] == [True, True]
    assert [one.workspaces.counts_sparse for one in told] == [True, False]
