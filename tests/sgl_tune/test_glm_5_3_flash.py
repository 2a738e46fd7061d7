"""GLM-5.3 Flash's servers: which experts they tune, on how many rows, which of them end or are unknown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from runtime.server.errors import ConfigError
from runtime.server.rows import batch_rows
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.call_shapes import _experts
from sgl_tune.keys.gaps import unplanned
from sgl_tune.keys.starts import never_starts
from tests.memory.checkpoints import DATA
from tests.memory.served import held

_NAME = "a/glm-5.3-flash-as-its-classes-have-it"


def _flash(
    folder: Path, command: str, gpu: str = "H200", whole: Mapping[str, Any] | None = None, **text: Any
) -> Deployment:
    told = {**json.loads((DATA / "published_families.json").read_text())[_NAME], **(whole or {})}
    told["text_config"] |= {"index_kpool": 4, **text}  # pages that divide what is between kept states
    (folder / "config.json").write_text(json.dumps(told))
    words = f"python -m sglang.launch_server --model-path {folder} --tp 8 {command}".split()
    flags = ServerFlags(sglang_version="0.5.23", flashinfer_version="0.7.2", gpu=gpu)
    return select_deployments(flags, words, environ={})[0]


@pytest.mark.parametrize(
    ("gpu", "command", "text", "why"),
    [
        ("H200", "", {}, None),
        ("B200", "", {}, None),
        ("H200", "--kv-cache-dtype fp8_e4m3", {}, "--dsa-decode-backend flashmla_kv takes no tokens beside"),
        ("H200", "--kv-cache-dtype fp8_e4m3 --dsa-decode-backend fa3", {}, None),
        ("B200", "--dsa-decode-backend flashmla_kv", {}, "--dsa-decode-backend flashmla_kv takes"),
        ("H200", "", {"index_head_dim": 64}, "index_head_dim is 64"),
        ("H200", "--mamba-track-interval 8192", {"index_kpool": 128}, "index_kpool is 128"),
        ("H200", "", {"n_routed_experts": 4, "num_experts_per_tok": 2}, "4 experts are fewer than 8 ranks"),
    ],
)
def test_glm_5_3_flash_ends_where_its_indexer_does(
    gpu: str, command: str, text: dict[str, Any], why: str | None, tmp_path: Path
) -> None:
    found = never_starts(_flash(tmp_path, command, gpu, **text))
    assert found is None if why is None else found is not None and found.startswith(why)


@pytest.mark.parametrize("command", ["", "--enable-dp-attention --dp 8", "--ep 8"])
@pytest.mark.parametrize("backend", ["flashinfer_trtllm", "flashinfer_trtllm_routed", "flashinfer_cutlass"])
def test_glm_5_3_flash_tunes_trtllms_experts_for_prefills(backend: str, command: str, tmp_path: Path) -> None:
    """wants_prefill_autotune of srt/models/glm5_next.py."""
    asked = f"--max-running-requests 64 --chunked-prefill-size 8192 --moe-runner-backend {backend}"
    deployment = _flash(tmp_path, f"{asked} {command}", "B200")
    by_itself = "trtllm" in backend and "dp" not in command
    assert deployment.server.tunes_prefills is deployment.runtime.autotune_extend is by_itself
    rows = batch_rows(deployment.server)
    assert rows.tuning == (8192 if by_itself else 64) and not unplanned(deployment)


@pytest.mark.parametrize(
    ("backend", "command", "experts"),
    [
        ("flashinfer_cutlass", "", (289, 289, 9)),
        ("flashinfer_cutlass", "--ep 8", (36, 288, 8)),
        ("flashinfer_cutlass", "--disable-shared-experts-fusion", (288, 288, 8)),
        ("flashinfer_trtllm_routed", "", (288, 288, 8)),
    ],
)
def test_glm_5_3_flashs_shared_expert_is_one_of_the_others(
    backend: str, command: str, experts: tuple[int, int, int], tmp_path: Path
) -> None:
    """shared_experts_fusion_disable_reason of srt/models/glm5_next.py."""
    found = _experts(_flash(tmp_path, f"--moe-runner-backend {backend} {command}", "B200"))
    assert (found.local, found.total, found.top_k) == experts


_IN_BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
_IN_FP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}
_VISUAL, _SHARED = ["model.visual"], "model.language_model.layers.7.mlp.shared_experts"
_GATES = [f"self_attn.{one}_proj" for one in ("b", "f_a", "f_b", "g_a", "g_b")]


@pytest.mark.parametrize(
    ("gpu", "command", "section", "said"),
    [
        ("H200", "", {**_IN_BLOCKS, "modules_to_not_convert": [*_VISUAL, "self_attn"]}, None),
        ("H200", "", {**_IN_BLOCKS, "modules_to_not_convert": _VISUAL}, "a rank has 8 rows of a matrix"),
        (
            "H200",
            "",
            {**_IN_BLOCKS, "modules_to_not_convert": [*_VISUAL, *_GATES, _SHARED]},
            "shared experts stored otherwise",
        ),
        (
            "H200",
            "--disable-shared-experts-fusion",
            {**_IN_BLOCKS, "modules_to_not_convert": [*_VISUAL, *_GATES, _SHARED]},
            None,
        ),
        ("B200", "", {**_IN_FP4, "ignore": ["lm_head", "*visual*"]}, None),
        ("H200", "", {**_IN_FP4, "ignore": ["lm_head", "*visual*"]}, "experts in nvfp4 but on"),
        ("H200", "", {**_IN_FP4, "ignore": ["lm_head", "*visual*", f"{_SHARED}*"]}, None),
    ],
)
def test_a_quantized_glm_5_3_flash_is_known_where_its_shared_experts_are_as_the_others(
    gpu: str, command: str, section: dict[str, Any], said: str | None, tmp_path: Path
) -> None:
    """shared_experts_fusion_disable_reason of srt/models/glm5_next.py."""
    told = {"quantization_config": section}
    found = _flash(tmp_path, command, gpu, whole=told)
    if found.shape.model is None or said is None:
        why = found.shape.unknown or " ".join(found.model.obstacles)
        assert said in why if said else not why
    else:
        with pytest.raises(ConfigError, match=said):
            held(found)


@pytest.mark.parametrize(
    ("served", "not_served", "said"),
    [
        ("", "--dtype half", "another dtype than bfloat16"),
        ("--quantization fp8", "--quantization fp8 --speculative-algorithm EAGLE", "drafts"),
        ("--pp-size 2", "--speculative-algorithm EAGLE", "drafts"),
        ("--ep 8 --moe-a2a-backend deepep", "--dtype float32", "another dtype than bfloat16"),
    ],
)
def test_what_glm_5_3_flashs_class_is_not_written_for_has_a_key_alone(
    served: str, not_served: str, said: str, tmp_path: Path
) -> None:
    assert _flash(tmp_path, served).shape.model is not None
    refused = _flash(tmp_path, not_served)
    assert refused.shape.model is None and refused.server.key
    assert refused.shape.unknown.startswith(f"glm5_next_text does not go with {said}")
