"""What layers keep once a server has laid them out, of published checkpoints: beside what they load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from runtime.forward.comm import VirtualCommunicator
from runtime.layers.linear import Linear
from runtime.models.decoder import Decoder
from runtime.models.experts import Experts
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from tests.memory.checkpoints import checkpoints
from tests.memory.rank_bytes import bytes_of

PUBLISHED = {one.name: one for one in checkpoints()}
MXFP8 = {"quant_method": "mxfp8", "activation_scheme": "dynamic"}
CUTLASS = ("--moe-runner-backend", "flashinfer_cutlass")


def _layers(
    folder: Path, name: str, section: dict[str, Any] | None, gpu: str, count: int, *argv: str
) -> Decoder:
    one = PUBLISHED[name]
    told = {**one.config, "quantization_config": section} if section else one.config
    (folder / "config.json").write_text(json.dumps(told))
    if one.modelopt_file:
        (folder / "hf_quant_config.json").write_text(json.dumps(one.modelopt_file))
    command = ["sglang", "serve", "--model-path", str(folder), *argv]
    flags = ServerFlags(gpu=gpu, sglang_version="0.5.23")
    found = select_deployments(flags, command, environ={})[0]
    comm = VirtualCommunicator(found.parallel, 0)
    return Decoder(found.model, found.runtime, comm, torch.device("meta"), range(count))


def _lay_out(rank: Decoder) -> None:
    for module in rank.modules():
        if isinstance(module, (Linear, Experts)):
            module.relay()


def _parts(rank: Decoder, *names: str) -> int:
    return sum(held.nbytes for name, held in rank.named_parameters() if name.rpartition(".")[2] in names)


def test_mxfp8_on_blackwell_has_all_scales_twice(tmp_path: Path) -> None:
    rank = _layers(tmp_path, "Qwen/Qwen3-32B", MXFP8, "B200", 2)
    loaded, scales = bytes_of(rank), _parts(rank, "weight_scale_inv")
    _lay_out(rank)
    assert scales and bytes_of(rank) == loaded + scales


@pytest.mark.parametrize("argv", [(), ("--moe-a2a-backend", "deepep")])
def test_deep_gemms_experts_on_blackwell_have_words_a_row(argv: tuple[str, ...], tmp_path: Path) -> None:
    """Behind DeepEP without being asked for: a layer's 32 of 256 experts, 2,048 wide, of a rank of eight."""
    places = ("--tp", "8", "--ep", "8", *argv)
    rank = _layers(tmp_path, "deepseek-ai/DeepSeek-R1", None, "B200", 4, *places)
    _lay_out(rank)
    words = 32 * (4096 * 56 // 4 + 7168 * 16 // 4) * 4
    blocks = 32 * (4096 // 128 * 56 + 7168 // 128 * 16) * 4
    assert _parts(rank, "up_weight_scale_inv", "down_weight_scale_inv") == (words if argv else blocks)


def test_room_for_cutlass_stays_where_marlin_multiplies(tmp_path: Path) -> None:
    rank = _layers(tmp_path, "nvidia/Qwen3-30B-A3B-NVFP4", None, "H200", 2)
    room = _parts(rank, "up_blockscale_swizzled", "down_blockscale_swizzled")
    _lay_out(rank)
    assert room and _parts(rank, "up_blockscale_swizzled", "down_blockscale_swizzled") == room


@pytest.mark.parametrize(("argv", "inner"), [(CUTLASS, 1920), ((*CUTLASS, "--tp", "2"), 1024)])
def test_experts_without_gates_are_padded_for_cutlass(
    argv: tuple[str, ...], inner: int, tmp_path: Path
) -> None:
    """1,856 of Nemotron 3 Nano's are no multiple of 128, nor is a half of them."""
    rank = _layers(tmp_path, "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4", None, "B200", 4, *argv)
    _lay_out(rank)
    held = {
        name.rpartition(".")[2]: one.shape for name, one in rank.named_parameters() if ".up_weight" in name
    }
    assert held["up_weight"][1] == inner
