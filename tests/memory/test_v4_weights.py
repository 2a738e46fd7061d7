"""What a rank holds of DeepSeek-V4 as published, beside what SGLang's own class makes for it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from runtime.forward.comm import VirtualCommunicator
from runtime.models.decoder import Decoder
from runtime.server.checkpoint import Checkpoint
from runtime.server.config import RuntimeConfig
from runtime.server.errors import Unsupported
from runtime.server.parallel_config import ParallelConfig
from tests.oracle.deepseek_v4 import FLASH
from tests.oracle.v4_weights import CASES, CONFIGS, FIRST_LAYERS, backend_of, of_each, read, read_each

META = torch.device("meta")
MAJORS = {"H200": 9, "B200": 10}


def _rank(config: dict[str, Any], runtime: RuntimeConfig, **sizes: int) -> Decoder:
    parallel = ParallelConfig(**sizes, enable_dp_attention=sizes["dp"] > 1)
    comm, model = VirtualCommunicator(parallel, sizes["tp"] - 1), Checkpoint(config).model_config()
    return Decoder(model, runtime, comm, META, range(model.num_layers))


@pytest.mark.parametrize(("case", "held"), read(), ids=lambda one: str(one)[:70])
def test_a_rank_holds_as_many_bytes_as_sglangs_own_class(case: dict[str, Any], held: int) -> None:
    runtime = RuntimeConfig(served_by=backend_of(case), sm_major=MAJORS[case["gpu"]])
    sizes = {name: case[name] for name in ("tp", "ep", "dp")}
    rank = _rank(CONFIGS[case["config"]], runtime, **sizes)
    assert sum(one.nbytes for one in rank.parameters()) == held


@pytest.mark.parametrize("case", read_each(), ids=str)
def test_of_its_first_layers_each_releases_own(case: dict[str, Any]) -> None:
    runtime = RuntimeConfig(
        served_by=backend_of(case), sm_major=MAJORS[case["gpu"]], sglang_version=case["release"]
    )
    config = {**CONFIGS[case["config"]], "num_hidden_layers": FIRST_LAYERS}
    rank = _rank(config, runtime, **{name: case[name] for name in ("tp", "ep", "dp")})
    assert sum(one.nbytes for one in rank.parameters()) == case["bytes"]


def test_every_case_was_recorded() -> None:
    told = [{name: value for name, value in case.items() if name != "bytes"} for case in read_each()]
    assert told == of_each()
    assert [case for case, _ in read()] == CASES


@pytest.mark.parametrize("sm_major", [9, 10])
def test_laid_out_its_experts_take_half_a_byte_a_weight_and_one_for_each_32(sm_major: int) -> None:
    runtime = RuntimeConfig(served_by="flashinfer_mxfp4", sm_major=sm_major)
    rank = _rank({**FLASH, "num_hidden_layers": 1}, runtime, tp=8, ep=1, dp=1)
    rank.load_dummy()
    experts = sum(one.nbytes for name, one in rank.named_parameters() if ".experts." in name)
    weights = 256 * 3 * 4096 * 2048 // 8
    assert experts == weights // 2 + weights // 32


@pytest.mark.parametrize(
    ("told", "named"),
    [
        ({"modules_to_not_convert": ["lm_head", "layers.0.attn.wq_a"]}, "'layers.0.attn.wq_a' is listed"),
        ({"ignored_layers": ["model.layers.0.self_attn.q_a_proj"]}, "q_a_proj' is listed"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "lie in awq a group is not known"),
    ],
)
def test_plain_matrices_by_other_names_and_other_kinds_are_refused_by_name(
    told: dict[str, Any], named: str
) -> None:
    section = {**FLASH["quantization_config"], **told}
    model = Checkpoint({**FLASH, "quantization_config": section}).model_config()
    assert any(named in one for one in model.obstacles)
    plain = {**FLASH["quantization_config"], "modules_to_not_convert": ["lm_head"]}
    assert not Checkpoint({**FLASH, "quantization_config": plain}).model_config().obstacles


def test_a_layout_that_is_not_known_is_named() -> None:
    with pytest.raises(Unsupported, match="marlin lays out mxfp4 experts beside fp8 is not known"):
        _rank({**FLASH, "num_hidden_layers": 1}, RuntimeConfig(served_by="marlin"), tp=1, ep=1, dp=1)
