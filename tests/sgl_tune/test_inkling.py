"""Inkling: which of its servers end, what of others is not known, what they tune, how large its pools are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from runtime.forward.comm import VirtualCommunicator
from runtime.models.decoder import Decoder
from runtime.server.asked import Asked, changed
from runtime.server.checkpoint import Checkpoint
from runtime.server.config import RuntimeConfig
from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from runtime.server.flags import flags_of, parse
from runtime.server.gpus import find_gpu
from runtime.server.parallel_config import ParallelConfig
from runtime.server.pool_plan import FreeMemory, plan_pool
from runtime.server.releases import release_named
from runtime.server.resolve import resolve
from runtime.server.unpredicted import knows_forwards
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.keys import expected_keys
from sgl_tune.keys.starts import never_starts
from tests.memory.checkpoints import published_config

_TEXT = {
    "model_type": "inkling_model",
    **{"num_hidden_layers": 6, "hidden_size": 256, "local_layer_ids": [0, 1, 2, 3], "use_sconv": True},
    **{"num_attention_heads": 8, "num_key_value_heads": 2, "swa_num_key_value_heads": 4},
    **{"intermediate_size": 64, "dense_intermediate_size": 128, "dense_mlp_idx": 1, "n_routed_experts": 8},
}
_DENSE = {"num_hidden_layers": 2, "local_layer_ids": [0], "dense_mlp_idx": 2}
_WIDE = {"num_attention_heads": 6}
_BEHIND = {"swa_num_key_value_heads": 2}
_ONES = {"num_bits": [2, 1], "block_sizes": {"-1": 16, "scale_bits": [4, 3]}}
_NVFP4 = {
    **{"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["unembed"]},
    "modelopt_quant_config": {"quant_cfg": {"*weight_quantizer": _ONES}},
}
_IN_BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}


def _told(text: Any = None, vision: Any = None, audio: Any = None, **whole: Any) -> dict[str, Any]:
    told = {"text_config": {**_TEXT, **(text or {})}, "vision_config": vision, "audio_config": audio}
    named = {"architectures": ["InklingForConditionalGeneration"], "model_type": "inkling_mm_model"}
    return {**named, "dtype": "bfloat16", **told, **whole}


def _tower(**told: Any) -> dict[str, Any]:
    return {"decoder_dmodel": 256, "patch_size": 40, "n_layers": 4, **told}


@pytest.mark.parametrize(
    ("told", "command", "why"),
    [
        (_told(), "", None),
        (_told(), "--tp 4", None),
        ({**_told(), "text_config": None}, "--tp 4", "local_layer_ids names no layer"),
        (_told(model_type="inkling_model"), "", "reads an inkling_mm_model"),
        (_told(), "--disable-radix-cache", "keeps prefixes, and states of them in an extra buffer"),
        (_told(), "--disable-radix-cache --disaggregation-mode decode", None),
        (_told(), "--disable-hybrid-swa-memory", "keeps windows apart"),
        (_told(), "--attention-backend fa3", "attends on fa4 and triton alone, and not on fa3"),
        (_told(), "--prefill-attention-backend fa4 --decode-attention-backend triton", None),
        (_told(), "--prefill-attention-backend fa4 --decode-attention-backend fa3", "not on fa3"),
        (_told(), "--pp-size 2", "has no pipeline stages"),
        (_told(text=_WIDE), "--tp 4", "6 attention heads cannot be divided among 4 ranks"),
        (_told(text={**_BEHIND, "swa_num_attention_heads": 6}), "--tp 4", "6 attention heads behind windows"),
        (
            _told(text={"num_attention_heads": 12, "num_key_value_heads": 3}),
            "--tp 4",
            "3 KV heads cannot be divided among 4 ranks",
        ),
        (_told(text={"local_layer_ids": []}), "", "local_layer_ids names no layer"),
        (_told(text={"local_layer_ids": [*range(6)]}), "", "takes no pages of 128"),
        (_told(text={"local_layer_ids": [*range(6)]}), "--attention-backend triton --page-size 1", None),
        (_told(text={"local_layer_ids": [0, 6]}), "", "SGLang asks for numbers of 6 layers"),
        (_told(text={"local_layer_ids": [1, 1]}), "", "names a layer twice"),
        (_told(text={"n_routed_experts": 6}), "--tp 4 --ep-size 4", "6 experts cannot be divided"),
        (_told(text={"n_routed_experts": 6, **_DENSE}), "--tp 4 --ep-size 4", None),
        (_told(text={"intermediate_size": 66}), "--tp 4", "intermediate_size is 66, no multiple of 4"),
        (_told(text={"intermediate_size": 66}), "--tp 4 --ep-size 4", None),
        (_told(text={"dense_intermediate_size": 66}), "--tp 4", "dense_intermediate_size is 66"),
        (_told(text={"use_sconv": False}), "--enable-scattered-sconv", "use_sconv is not told"),
        (_told(text={"hidden_size": 66}), "--tp 4 --enable-scattered-sconv", "hidden_size is 66"),
        (_told(quantization_config=_IN_BLOCKS), "", "no modelopt_quant_config.quant_cfg.*weight_quantizer"),
        (_told(quantization_config=_NVFP4), "", None),
        (_told(vision=_tower(patch_size=1)), "", None),
        (_told(vision=_tower(patch_size=1)), "--enable-multimodal", "patch_size is 1: SGLang asks for 2"),
        (_told(vision=_tower(n_layers=0)), "--enable-multimodal", "n_layers is 0"),
        (_told(vision=_tower(vision_encoder_type="linear")), "--enable-multimodal", "SGLang has hmlp alone"),
        (
            _told(audio={"decoder_dmodel": 8, "audio_mode": "flow"}),
            "--enable-multimodal",
            "SGLang has dmel alone",
        ),
        (_told(vision=_tower(), audio={"decoder_dmodel": 8}), "--enable-multimodal", None),
    ],
)
def test_which_servers_end(told: Any, command: str, why: str | None, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(told))
    server = f"python -m sglang.launch_server --model-path {tmp_path} {command}"
    flags = ServerFlags(arch="sm100", sglang_version="0.5.23")
    [one] = select_deployments(flags, command=server.split())
    found = never_starts(one)
    assert (found is None) if why is None else (found is not None and why in found), found


_CONFIG = published_config("thinkingmachines/Inkling")


def _published(folder: Path, command: str, whole: Any = None, **text: Any) -> Deployment:
    told = {**_CONFIG, **(whole or {}), "text_config": {**_CONFIG["text_config"], **text}}
    (folder / "config.json").write_text(json.dumps(told))
    server = f"python -m sglang.launch_server --model-path {folder} {command}"
    [one] = select_deployments(ServerFlags(arch="sm100", sglang_version="0.5.23"), command=server.split())
    return one


@pytest.mark.parametrize(
    "flag", ["--enable-multimodal", "--enable-scattered-sconv", "--enable-unified-memory", "--lora-paths /a"]
)
def test_what_is_not_known_is_named(flag: str, tmp_path: Path) -> None:
    refused = _published(tmp_path, f"--tp 8 {flag}")
    assert refused.shape.model is None and refused.server.key
    assert "inkling_model does not go with" in refused.shape.unknown


@pytest.mark.parametrize(("experts", "routing"), [(256, "(0,), (1, 6), (1,)"), (128, "(0,), (1, 6), (1, 6)")])
def test_experts_in_bfloat16_are_tuned_on_trtllm_alone(experts: int, routing: str, tmp_path: Path) -> None:
    """A router of 256 and 2 has a kernel that packs each choice in one number."""
    assert not _published(tmp_path, "--tp 8").server.tunes
    tuned = _published(
        tmp_path, "--tp 8 --moe-runner-backend flashinfer_trtllm_routed", n_routed_experts=experts
    )
    [op] = expected_keys(tuned)
    assert op.op == "flashinfer::trtllm_bf16_moe" and routing in op.keys[0]


_PLAIN = [f"model.llm.layers.{n}.{one}" for n in range(66) for one in ("attn", "mlp.shared_experts")]
_PLAIN += [f"model.llm.layers.{n}.mlp.{one}" for n in (0, 1) for one in ("w13_dn", "w2_md")]
_PACKED = {**_NVFP4, "exclude_modules": [*_PLAIN, "model.llm.layers.2.mlp.experts"]}


def test_experts_in_nvfp4_are_tuned_on_trtllm_and_those_that_a_list_keeps_plain_are_not(
    tmp_path: Path,
) -> None:
    packed = {"quantization_config": _PACKED}
    tuned = _published(tmp_path, "--tp 8 --moe-runner-backend flashinfer_trtllm_routed", whole=packed)
    [op] = expected_keys(tuned)
    assert op.op == "flashinfer::trtllm_fp4_block_scale_moe" and "(1, 3072), (1, 384)" in op.keys[0]
    refused = _published(tmp_path, "--tp 8", whole=packed)
    assert "experts in nvfp4 but on flashinfer_trtllm_routed" in refused.shape.unknown


# By SGLang's own class, which leaves room for scales as CUTLASS wants them.
@pytest.mark.parametrize(
    ("tp", "ep", "held"), [(1, 1, 638382312708), (8, 1, 79988102404), (4, 4, 159758558724)]
)
def test_a_rank_holds_experts_in_nvfp4_as_its_own_class_does(tp: int, ep: int, held: int) -> None:
    model = Checkpoint({**_CONFIG, "quantization_config": _PACKED}).model_config()
    comm = VirtualCommunicator(ParallelConfig(tp=tp, ep=ep), tp - 1)
    runtime = RuntimeConfig(quantization="modelopt_fp4", sm_major=10)
    rank = Decoder(model, runtime, comm, torch.device("meta"), range(model.num_layers))
    assert sum(one.nbytes for one in rank.parameters()) == held


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({**_PACKED, "exclude_modules": _PLAIN[1:]}, "exclude_modules mean no llm.layers.0.attn.qkvr"),
        ({**_PACKED, "exclude_modules": _PLAIN[:-1]}, "exclude_modules mean no llm.layers.1.mlp.down_proj"),
        ({**_PACKED, "exclude_modules": None, "ignore": _PLAIN}, "exclude_modules mean no llm.layers.0"),
        (_IN_BLOCKS, "quantization_config: fp8: SGLang's Inkling has nvfp4 alone"),
    ],
)
def test_what_else_is_quantized_is_named(section: dict[str, Any], said: str) -> None:
    assert said in model_config({**_CONFIG, "quantization_config": section}).obstacles[0]


def test_a_list_of_no_names_is_refused() -> None:
    with pytest.raises(ConfigError, match="exclude_modules is 5: a list is needed"):
        model_config({**_CONFIG, "quantization_config": {**_PACKED, "exclude_modules": 5}})


def test_its_forwards_are_not_predicted_with_experts_or_without(tmp_path: Path) -> None:
    for dense in (2, 66):
        model = _published(tmp_path, "--tp 8", dense_mlp_idx=dense).shape.model
        assert model is not None and not knows_forwards(model)


# By each release's own pools on an H200, of what its layers, its server and free memory are.
_WIDE_PAGES = (
    "--tp 2 --swa-full-tokens-ratio 0.3 --kv-cache-dtype fp8_e4m3 --page-size 64 --context-length 4096"
)


@pytest.mark.parametrize(
    ("release", "command", "layers", "gib", "tokens", "requests"),
    [
        ("0.5.16", "--tp 8", 66, 60, 5199917, 226),
        ("0.5.16", _WIDE_PAGES, 12, 20, 2383104, 353),
        ("0.5.23", "--tp 8", 66, 60, 5199917, 226),
        ("0.5.23", _WIDE_PAGES, 12, 20, 2383104, 352),
        ("0.5.23", "--tp 8 --max-running-requests 48 --mamba-full-memory-ratio 0.4", 24, 20, 3745163, 48),
    ],
)
def test_three_pools_share_what_is_free(
    release: str, command: str, layers: int, gib: int, tokens: int, requests: int
) -> None:
    local = [layer for layer in range(layers) if (layer + 1) % 6]
    text = {**_CONFIG["text_config"], "num_hidden_layers": layers, "local_layer_ids": local}
    checkpoint, row = Checkpoint({**_CONFIG, "text_config": text}), release_named(release).release
    asked = changed(Asked(), parse(flags_of(release), ["--model-path", "inkling", *command.split()]).given)
    server, model = resolve(asked, checkpoint, None, find_gpu("H200"), row), checkpoint.model_config()
    runtime, free = replace(server.runtime, images_mib=0), FreeMemory(gib << 30, gib << 30)
    plan = plan_pool(free, 1.0, model, server.parallel, runtime, range(layers))
    assert (plan.tokens, plan.max_running_requests) == (tokens, requests)
