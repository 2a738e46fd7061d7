"""Hunyuan 4: what its servers become, what drafts and pools hold, which of them end or are not known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.server.checkpoint import Checkpoint
from runtime.server.errors import ConfigError
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.errors import SglTuneError
from sgl_tune.keys.call_shapes import _experts
from sgl_tune.keys.gaps import unplanned
from sgl_tune.keys.plan import make_plan
from sgl_tune.keys.starts import never_starts
from sgl_tune.keys.tunable import cannot_tune
from tests.memory.checkpoints import DATA

_NAME = "a/hy4-preview-as-its-classes-have-it"


def _file(**changes: Any) -> dict[str, Any]:
    """None leaves a member out."""
    told = {**json.loads((DATA / "published_families.json").read_text())[_NAME], **changes}
    return {name: value for name, value in told.items() if value is not None}


def _served(folder: Path, command: str = "", gpu: str = "B200", **changes: Any) -> Deployment:
    (folder / "config.json").write_text(json.dumps(_file(**changes)))
    words = f"python -m sglang.launch_server --model-path {folder} --tp 8 {command}".split()
    flags = ServerFlags(sglang_version="0.5.23", flashinfer_version="0.7.2", gpu=gpu)
    return select_deployments(flags, words, environ={})[0]


@pytest.mark.parametrize("told", [{}, {"learnable_sink": None}])
@pytest.mark.parametrize(("gpu", "backend"), [("H200", "auto"), ("B200", "flashinfer_trtllm")])
def test_its_cache_stays_wide(gpu: str, backend: str, told: dict[str, Any], tmp_path: Path) -> None:
    """Its class has sinks where a file does not say."""
    server = _served(tmp_path, gpu=gpu, **told).server
    assert (server.kv_cache_dtype, server.page_size, server.moe_runner_backend) == ("bfloat16", 64, backend)
    assert server.prefill_attention_backend == server.decode_attention_backend == "dsa"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("--kv-cache-dtype fp8_e4m3", "attention sinks beside an indexer want a wide cache"),
        ("--dsa-decode-backend fa3", "attention sinks beside an indexer are for flashmla_sparse"),
        ("--dsa-prefill-backend tilelang", "attention sinks beside an indexer are for flashmla_sparse"),
        ("--dcp-size 2", "HYV4 does not go with context parallelism"),
    ],
)
def test_what_sglangs_arguments_refuse(command: str, said: str, tmp_path: Path) -> None:
    with pytest.raises((ConfigError, SglTuneError), match=said):
        _served(tmp_path, command)


@pytest.mark.parametrize(
    ("command", "changes", "why"),
    [
        ("", {}, None),
        ("--dsa-decode-backend flashmla_sparse", {}, None),
        ("--pp-size 2", {}, "SGLang's HYV4ForCausalLM has no pipeline stages"),
        ("", {"index_head_dim": 64}, "index_head_dim is 64"),
        ("", {"n_routed_experts": 4, "num_experts_per_tok": 2}, "4 experts are fewer than 8 ranks"),
    ],
)
def test_where_it_ends(command: str, changes: dict[str, Any], why: str | None, tmp_path: Path) -> None:
    found = never_starts(_served(tmp_path, command, **changes))
    assert found is None if why is None else found is not None and found.startswith(why)


@pytest.mark.parametrize(
    ("command", "experts"),
    [("", (256, 256, 8)), ("--ep 8", (32, 256, 8)), ("--speculative-algorithm EAGLE", (256, 256, 8))],
)
@pytest.mark.parametrize("backend", ["flashinfer_trtllm", "flashinfer_cutlass"])
def test_its_shared_expert_is_never_one_of_the_others(
    backend: str, command: str, experts: tuple[int, int, int], tmp_path: Path
) -> None:
    """shared_experts_fusion_disable_reason of srt/models/hunyuan_v4.py."""
    deployment = _served(tmp_path, f"--moe-runner-backend {backend} {command}")
    found = _experts(deployment)
    assert (found.local, found.total, found.top_k) == experts and not unplanned(deployment)
    assert cannot_tune(make_plan(deployment, gpus=())) is None


_IN_BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
_IN_MXFP8 = {"quant_method": "mxfp8", "activation_scheme": "dynamic"}
_MODELOPTS = {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}


@pytest.mark.parametrize("section", [_IN_BLOCKS, _IN_MXFP8])
def test_it_is_known_in_formats_by_whose_name_its_class_looks_for_scales(
    section: dict[str, Any], tmp_path: Path
) -> None:
    assert _served(tmp_path, quantization_config=section).shape.model is not None


@pytest.mark.parametrize(
    ("command", "section", "said"),
    [
        ("--dtype half", None, "another dtype than bfloat16"),
        ("", _MODELOPTS, "quantized weights of a checkpoint but in fp8 blocks and mxfp8"),
        ("--speculative-algorithm EAGLE", _IN_BLOCKS, "drafts of quantized weights"),
    ],
)
def test_what_its_class_is_not_written_for_has_a_key_alone(
    command: str, section: dict[str, Any] | None, said: str, tmp_path: Path
) -> None:
    refused = _served(tmp_path, command, quantization_config=section)
    assert refused.shape.model is None and refused.server.key
    assert refused.shape.unknown.startswith(f"hy_v4 does not go with {said}")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"indexer_types": ["shared"] * 34}, "the first layer has no other's choice to share"),
        ({"swiglu_limit": 0}, "swiglu_limit is 0"),
    ],
)
def test_what_no_model_can_have_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Checkpoint(_file(**changes)).model_config()


def test_a_file_that_leaves_out_what_chooses_its_backend_is_named() -> None:
    assert [why for why in Checkpoint(_file(index_topk=None)).model_config().obstacles if "index_topk" in why]
