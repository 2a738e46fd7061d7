"""What is told of a server of Mllama: which end, and of which its layers are not known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.memory.checkpoints import DATA
from tests.sgl_tune.ends import why_it_ends
from tests.sgl_tune.running import run_here

_TOLD = json.loads((DATA / "published_families.json").read_text())["a/llama-3.2-11b-vision-from-memory"]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    text = {**_TOLD["text_config"], "num_hidden_layers": 5}
    (tmp_path / "config.json").write_text(json.dumps({**_TOLD, "text_config": text}))
    return tmp_path


@pytest.mark.parametrize("release", ["0.5.12", "0.5.23"])
@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({}, None),
        ({"attention_backend": "triton"}, "which triton has not: --attention-backend flashinfer"),
        ({"moe_runner_backend": "flashinfer_trtllm"}, "--disable-flashinfer-autotune"),
        ({"moe_runner_backend": "flashinfer_trtllm", "disable_flashinfer_autotune": True}, None),
        ({"tp": 8}, None),
        ({"tp": 16}, "8 KV heads are fewer than 16 ranks"),
        ({"tp": 16, "disable_cuda_graph": True}, None),
        ({"pp": 2}, "no pipeline stages"),
        ({"tp": 2, "dp": 2, "enable_dp_attention": True}, "splits its heads over all 2 ranks"),
    ],
)
def test_where_it_ends(flags: dict[str, Any], why: str | None, release: str, small: Path) -> None:
    found = why_it_ends(model_path=str(small), arch="sm90", sglang_version=release, **flags)
    assert found is None if why is None else found is not None and why in found, found


def test_a_file_of_its_text_alone_ends(tmp_path: Path) -> None:
    told = {**_TOLD["text_config"], "architectures": _TOLD["architectures"]}
    (tmp_path / "config.json").write_text(json.dumps(told))
    found = why_it_ends(model_path=str(tmp_path), arch="sm90")
    assert found is not None and "takes that as a section, beside a tower" in found


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--gpu", "b200"), "attention but on fa3 or flashinfer"),
        (("--disable-cuda-graph", "--tp", "16"), "more ranks than KV heads"),
        (("--disaggregation-mode", "decode"), "disaggregation"),
    ],
)
def test_what_is_not_known_of_its_memory_is_refused_by_name(
    words: tuple[str, ...], said: str, small: Path
) -> None:
    gpu = () if "--gpu" in words else ("--gpu", "h200")
    ran = run_here("mem-report", *gpu, "--model-path", small, *words)
    assert ran.code and f"mllama_text_model does not go with {said}" in ran.err, ran.err


@pytest.mark.parametrize(
    ("backend", "held"),
    [
        ("fa3", ["page_table [256, 131072] int32", "encoder_page_table [256, 131072] int32"]),
        ("flashinfer", ["cuda_graph_wrappers [603979776] uint8"]),
    ],
)
def test_its_attention_has_tables_for_images(backend: str, held: list[str], small: Path) -> None:
    words = ("--gpu", "h200", "--model-path", small, "--attention-backend", backend)
    ran = run_here("mem-report", *words, "--format", "json")
    assert ran.code == 0, ran.err
    (graphs,) = (phase for phase in json.loads(ran.out)["phases"] if phase["name"] == "decode graphs")
    largest = [one["what"] for one in graphs["largest"]]
    assert all(f"SGLang's {one}" in largest for one in held), largest
