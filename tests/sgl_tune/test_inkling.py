"""Inkling, whose layers are not computed: which of its servers end, and at what of its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.starts import never_starts

_TEXT = {
    "model_type": "inkling_model",
    **{"num_hidden_layers": 6, "hidden_size": 256, "local_layer_ids": [0, 1, 2, 3], "use_sconv": True},
    **{"num_attention_heads": 8, "num_key_value_heads": 2, "swa_num_key_value_heads": 4},
    **{"intermediate_size": 64, "dense_intermediate_size": 128, "dense_mlp_idx": 1, "n_routed_experts": 8},
}
_DENSE, _WIDE = {"num_hidden_layers": 1, "local_layer_ids": []}, {"num_attention_heads": 6}
_ONES = {"num_bits": [2, 1], "block_sizes": {"-1": 16, "scale_bits": [4, 3]}}
_NVFP4 = {
    **{"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["unembed"]},
    "modelopt_quant_config": {"quant_cfg": {"*weight_quantizer": _ONES}},
}
_FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}


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
        ({**_told(), "text_config": None}, "--tp 4", None),
        (_told(model_type="inkling_model"), "", "reads an inkling_mm_model"),
        (_told(), "--disable-radix-cache", "keeps prefixes, and states of them in an extra buffer"),
        (_told(), "--disable-radix-cache --disaggregation-mode decode", None),
        (_told(), "--disable-hybrid-swa-memory", "keeps windows apart"),
        (_told(), "--attention-backend fa3", "attends on fa4 and triton alone, and not on fa3"),
        (_told(), "--prefill-attention-backend fa4 --decode-attention-backend triton", None),
        (_told(), "--prefill-attention-backend fa4 --decode-attention-backend fa3", "not on fa3"),
        (_told(), "--pp-size 2", "has no pipeline stages"),
        (_told(text=_WIDE), "--tp 4", "6 attention heads cannot be divided among 4 ranks"),
        (_told(text={"swa_num_attention_heads": 6}), "--tp 4", "6 attention heads behind windows"),
        (_told(text={**_WIDE, "swa_num_attention_heads": 8, "local_layer_ids": [*range(6)]}), "--tp 4", None),
        (_told(text={"num_key_value_heads": 3}), "--tp 4", "3 KV heads cannot be divided among 4 ranks"),
        (_told(text={"local_layer_ids": [0, 6]}), "", "SGLang asks for numbers of 6 layers"),
        (_told(text={"local_layer_ids": 5}), "", "local_layer_ids is 5"),
        (_told(text={"local_layer_ids": [1, 1]}), "", "names a layer twice"),
        (_told(text={"n_routed_experts": 6}), "--tp 4 --ep-size 4", "6 experts cannot be divided"),
        (_told(text={"n_routed_experts": 6, **_DENSE}), "--tp 4 --ep-size 4", None),
        (_told(text={"intermediate_size": 66}), "--tp 4", "intermediate_size is 66, no multiple of 4"),
        (_told(text={"intermediate_size": 66}), "--tp 4 --ep-size 4", None),
        (_told(text={"dense_intermediate_size": 66}), "--tp 4", "dense_intermediate_size is 66"),
        (_told(text={"use_sconv": False}), "--enable-scattered-sconv", "use_sconv is not told"),
        (_told(text={"hidden_size": 66}), "--tp 4 --enable-scattered-sconv", "hidden_size is 66"),
        (_told(quantization_config=_FP8), "", "no modelopt_quant_config.quant_cfg.*weight_quantizer"),
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
