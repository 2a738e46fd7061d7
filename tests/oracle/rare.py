"""Flags that are seldom set, a few a command, on any checkpoint: what the usual draws do not come to."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from tests.oracle.commands import Command
from tests.oracle.draws import Draw, all_to_all, data_parallel, moe_runner, speculation, tensor_parallel
from tests.oracle.published import MADE_UP, published, target_models

_ATTENTION = ("flashinfer", "triton", "fa3", "fa4", "trtllm_mha", "trtllm_mla", "torch_native",
              "flex_attention", "flashmla", "cutlass_mla", "nsa", "dsa", "tokenspeed_mla",
              "hpc_ops")  # fmt: skip
_RUNNERS = ("auto", "triton", "triton_kernel", "marlin", "cutlass", "deep_gemm", "megamoe",
            "flashinfer_cutlass", "flashinfer_trtllm", "flashinfer_trtllm_routed", "flashinfer_mxfp4",
            "flashinfer_cutedsl", "flashinfer_megamoe", "experimental_sgl_trtllm")  # fmt: skip
_ALL_TO_ALLS = ("deepep", "deepep_v2", "mooncake", "nixl", "mori", "flashinfer", "megamoe", "pplx",
                "flashinfer_megamoe")  # fmt: skip
_QUANTIZATIONS = ("fp8", "modelopt", "modelopt_fp8", "modelopt_fp4", "modelopt_mixed", "mxfp8", "mxfp4",
                  "nvfp4_online", "w8a8_int8", "w8a8_fp8", "awq", "gptq", "compressed-tensors", "moe_wna16",
                  "petit_nvfp4", "bitsandbytes", "qoq", "unquant")  # fmt: skip
_SIZES = (1, 4, 16, 17, 64, 100, 300, 1000, 4096)
_GRAPHS = tuple(
    json.dumps({phase: settings})
    for phase in ("decode", "prefill")
    for settings in ({"backend": "disabled"}, {"backend": "breakable"}, {"backend": "full"}, {"max_bs": 200},
                     {"bs": [3, 9, 30]}, {"backend": "tc_piecewise"},
                     {"backend": "breakable", "max_bs": 1000})
)  # fmt: skip
FLAGS: dict[str, tuple[object, ...]] = {
    "--attention-backend": _ATTENTION,
    "--prefill-attention-backend": _ATTENTION,
    "--decode-attention-backend": _ATTENTION,
    "--moe-runner-backend": _RUNNERS,
    "--moe-a2a-backend": _ALL_TO_ALLS,
    "--deepep-mode": ("auto", "normal", "low_latency"),
    "--flashinfer-a2a-dispatch-type": ("auto", "bf16", "mxfp8", "nvfp4"),
    "--quantization": _QUANTIZATIONS,
    "--kv-cache-dtype": ("fp8_e4m3", "fp8_e5m2", "bf16", "bfloat16", "fp4_e2m1"),
    "--dtype": ("half", "float16", "float32", "float"),
    "--page-size": (1, 16, 32, 48, 64, 128, 256),
    "--chunked-prefill-size": (-1, 1000, 2048, 4096, 20000),
    "--max-prefill-tokens": (1000, 4096, 40000),
    "--max-running-requests": _SIZES,
    "--max-total-tokens": (1000, 5000, 100000),
    "--context-length": (500, 2048, 5000, 40000),
    "--mem-fraction-static": (0.5, 0.93, 1.0, 0),
    "--cuda-graph-max-bs": _SIZES,
    "--cuda-graph-max-bs-decode": _SIZES,
    "--cuda-graph-max-bs-prefill": _SIZES,
    "--cuda-graph-bs-prefill": (64, 100),
    "--cuda-graph-backend-decode": ("full", "breakable", "tc_piecewise", "disabled"),
    "--cuda-graph-backend-prefill": ("full", "breakable", "tc_piecewise", "disabled"),
    "--cuda-graph-config": _GRAPHS,
    "--piecewise-cuda-graph-max-tokens": (100, 1000, 6000),
    "--piecewise-cuda-graph-tokens": (64, 100),
    "--disable-cuda-graph": (),
    "--disable-decode-cuda-graph": (),
    "--disable-prefill-cuda-graph": (),
    "--disable-piecewise-cuda-graph": (),
    "--enforce-piecewise-cuda-graph": (),
    "--disable-cuda-graph-padding": (),
    "--debug-cuda-graph": (),
    "--speculative-algorithm": (
        "EAGLE",
        "NEXTN",
        "NGRAM",
        "EAGLE3",
        "DFLASH",
        "DSPARK",
        "FROZEN_KV_MTP",
        "UNO",
    ),
    "--speculative-num-steps": (1, 3, 6),
    "--speculative-eagle-topk": (1, 2, 4),
    "--speculative-num-draft-tokens": (2, 4, 7, 300),
    "--speculative-ngram-max-bfs-breadth": (1, 3),
    "--speculative-dflash-block-size": (4, 9),
    "--speculative-moe-runner-backend": _RUNNERS,
    "--speculative-moe-a2a-backend": _ALL_TO_ALLS,
    "--speculative-attention-mode": ("prefill", "decode"),
    "--speculative-draft-attention-backend": _ATTENTION,
    "--speculative-draft-model-quantization": _QUANTIZATIONS,
    "--disaggregation-mode": ("prefill", "decode"),
    "--disaggregation-decode-enable-radix-cache": (),
    "--disaggregation-decode-enable-offload-kvcache": (),
    "--enable-dp-attention": (),
    "--moe-dense-tp-size": (1,),
    "--ep-size": (2, 4, 8),
    "--pp-size": (2, 4),
    "--attn-cp-size": (2,),
    "--dcp-size": (2,),
    "--enable-two-batch-overlap": (),
    "--enable-single-batch-overlap": (),
    "--enable-torch-compile": (),
    "--enable-hierarchical-cache": (),
    "--hicache-io-backend": ("direct", "kernel"),
    "--hicache-mem-layout": ("page_first", "page_first_direct", "layer_first"),
    "--enable-multimodal": (),
    "--language-only": (),
    "--encoder-urls": ("http://a:1",),
    "--language-model-only": (),
    "--linear-attn-backend": ("triton", "cutedsl", "flashinfer"),
    "--linear-attn-decode-backend": ("triton", "cutedsl", "flashinfer"),
    "--mamba-ssm-dtype": ("float32", "bfloat16"),
    "--mamba-scheduler-strategy": ("auto", "no_buffer", "extra_buffer"),
    "--mamba-radix-cache-strategy": ("auto", "no_buffer", "extra_buffer", "extra_buffer_lazy"),
    "--mamba-track-interval": (64, 100),
    "--enable-lora": (),
    "--load-format": ("dummy", "gguf"),
    "--dllm-algorithm": ("LowConfidence",),
    "--enable-symm-mem": (),
    "--enable-mis": (),
    "--enable-eplb": (),
    "--expert-distribution-recorder-mode": ("stat",),
    "--ep-num-redundant-experts": (8,),
    "--cpu-offload-gb": (4,),
    "--enable-waterfill": (),
    "--disable-radix-cache": (),
    "--disable-overlap-schedule": (),
    "--enable-deterministic-inference": (),
    "--rl-on-policy-target": ("fsdp",),
    "--disable-flashinfer-autotune": (),
    "--flashinfer-autotune-skip-ops": ("fp4_gemm", "mxfp8_gemm"),
    "--fp4-gemm-backend": ("auto", "flashinfer_cutlass", "flashinfer_cudnn", "flashinfer_cutedsl", "marlin"),
    "--fp8-gemm-backend": ("auto", "flashinfer_cutlass", "deep_gemm", "triton", "cutlass"),
    "--enable-dp-lm-head": (),
    "--is-embedding": (),
    "--enable-mixed-chunk": (),
}


def rare_commands(seed: int, count: int, releases: Sequence[str], gpus: Sequence[str]) -> list[Command]:
    """Half of them on published checkpoints, half on those that are named after an architecture."""
    chance = random.Random(f"rare {seed}")
    made_up = [name for name in published() if name.startswith(MADE_UP)]
    found = []
    for number in range(count):
        model = chance.choice(chance.choice((made_up, target_models())))
        draw = Draw(chance, chance.choice(releases), chance.choice(gpus), model, [])
        draw.words = ["--model-path", published()[model].path, "--trust-remote-code"]
        for rule in (tensor_parallel, data_parallel, all_to_all, moe_runner, speculation):
            if draw.maybe(0.4):
                rule(draw)
        for flag in chance.sample(sorted(FLAGS), chance.choice((1, 2, 2, 3))):
            values = FLAGS[flag]
            draw.add(flag, *([chance.choice(values)] if values else []))
        found.append(Command(number, draw.release, draw.gpu, model, tuple(draw.words)))
    return found
