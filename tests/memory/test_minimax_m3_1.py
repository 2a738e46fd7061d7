"""What a rank of MiniMax-M3.1 holds, and its pages on Blackwell, as SGLang 0.5.23's own classes have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from runtime.forward.comm import VirtualCommunicator
from runtime.forward.packed_pages import PackedPagesPool
from runtime.forward.pool_shape import PoolShape
from runtime.models.decoder import Decoder
from runtime.server.checkpoint import Checkpoint
from runtime.server.config import RuntimeConfig
from runtime.server.parallel_config import ParallelConfig
from runtime.server.sizing import PACKED, kv_bytes_per_token, packed_page_bytes
from tests.memory.checkpoints import DATA
from tests.oracle.packed_pages import served
from tests.sgl_tune.running import run_here

META = torch.device("meta")
ROUTED = "flashinfer_trtllm_routed"


def _of_two_layers() -> dict[str, Any]:
    told = served()
    lists = {"sparse_attention_freq": [1, 1], "sparse_disable_index_value": [1, 1]}
    sparse = {**told["text_config"]["sparse_attention_config"], **lists}
    more = {"num_hidden_layers": 2, "moe_layer_freq": [0, 1], "sparse_attention_config": sparse}
    return {**told, "text_config": {**told["text_config"], **more}}


# Its parameters, but its tower's; TRT-LLM's kernels take experts in multiples of 128.
@pytest.mark.parametrize(
    ("backend", "tp", "ep", "held"),
    [
        ("marlin", 1, 1, 9515943424),
        ("marlin", 8, 1, 1194780160),
        ("marlin", 16, 1, 601454080),
        ("marlin", 8, 8, 1194777472),
        (ROUTED, 8, 1, 1194780160),
        (ROUTED, 16, 1, 686388736),
        (ROUTED, 8, 8, 1194777472),
    ],
)
def test_a_rank_holds_as_many_bytes_as_sglangs_own(backend: str, tp: int, ep: int, held: int) -> None:
    model = Checkpoint(_of_two_layers()).model_config()
    comm, major = VirtualCommunicator(ParallelConfig(tp=tp, ep=ep), tp - 1), 9 if backend == "marlin" else 10
    runtime = RuntimeConfig(served_by=backend, quantization="minimax_m3_nvfp4", sm_major=major)
    rank = Decoder(model, runtime, comm, META, range(model.num_layers))
    assert not model.obstacles and sum(one.nbytes for one in rank.parameters()) == held


@pytest.mark.parametrize("case", json.loads((DATA / "sglang_packed_pages.json").read_text()))
def test_its_pages_are_packed_on_blackwell(case: dict[str, Any]) -> None:
    """tests/oracle/packed_pages.py"""
    model, parallel = Checkpoint(served()).model_config(), ParallelConfig(tp=case["tp"])
    layers = range(*case["stage"])
    shape = PoolShape(case["tokens"], 128, tuple(layers), torch.float8_e4m3fn, META)
    held = PackedPagesPool(shape, packed_page_bytes(model, parallel)).held()
    cell = kv_bytes_per_token(model, parallel, "fp8_e4m3", layers, index_dtype=PACKED)
    assert [cell, sum(one.nbytes for one in held)] == case["answer"]


@pytest.mark.parametrize(
    ("arch", "flags", "said"),
    [
        ("sm100", ("--moe-runner-backend", ROUTED), ("up to kv pool", "tokens of 12,960 bytes")),
        ("sm90", (), ("up to eager buffers", "tokens of 23,040 bytes")),
    ],
)
def test_a_start_is_known_up_to_kernels_of_its_own(
    arch: str, flags: tuple[str, ...], said: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(served()))
    asked = ("--arch", arch, "--sglang-version", "0.5.23", "--flashinfer-version", "0.7.2", "--tp", 8)
    ran = run_here("mem-report", *asked, "--model-path", tmp_path, *flags)
    assert all(one.lower() in ran.out.lower() for one in said), ran.out + ran.err


def test_on_hopper_its_mxfp8_becomes_blocks() -> None:
    model = Checkpoint(_of_two_layers()).model_config()
    comm = VirtualCommunicator(ParallelConfig(tp=8), 7)
    runtime = RuntimeConfig(served_by="marlin", quantization="minimax_m3_nvfp4", sm_major=9)
    rank = Decoder(model, runtime, comm, META, range(model.num_layers))
    rank.load_dummy()
    scales = {one.dtype for name, one in rank.named_parameters() if name.endswith("weight_scale_inv")}
    assert scales == {torch.float32}


def test_behind_megamoe_a_start_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(served()))
    asked = ("--arch", "sm100", "--sglang-version", "0.5.23", "--flashinfer-version", "0.7.2", "--tp", 8)
    ran = run_here("mem-report", *asked, "--model-path", tmp_path, "--chunked-prefill-size", 8192)
    assert ran.code not in (0, None) and "as behind megamoe, is not known here" in ran.err
