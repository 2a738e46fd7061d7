"""What a random server command is drawn from, a rule a concern of the server."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from runtime.server.flags import flags_of
from tests.oracle.machine import GPUS
from tests.oracle.published import published

WIDE = ("DeepSeek", "Kimi", "GLM-5", "235B", "GLM-4.6", "MiniMax", "Step-3.5")
MIDDLE = ("70B", "72B", "Scout", "120b")
DENSE = ("Llama-3", "Qwen3-32B", "Qwen2.5")
WITH_DRAFT_LAYERS = ("DeepSeek", "GLM-4", "GLM-5", "Qwen3-Next", "Qwen3.5", "MiniMax", "Step-3.5")
EAGLE3 = ("meta-llama/Llama-3.1-8B-Instruct", "lmsys/sglang-EAGLE3-LLaMA3.1-Instruct-8B")


@dataclass
class Draw:
    """What the rules below draw from, and the words that they add."""

    chance: random.Random
    release: str
    gpu: str
    model: str
    words: list[str]
    tp: int = 1
    dp: int = 1
    a2a: str | None = None

    def add(self, *words: object) -> None:
        """Only what this release has."""
        if str(words[0]) in flags_of(self.release).by_name:
            self.words += map(str, words)

    def maybe(self, share: float) -> bool:
        return self.chance.random() < share

    def one(self, of: Sequence[object]) -> object:
        return self.chance.choice(of)

    def named(self, *parts: str) -> bool:
        return any(part in self.model for part in parts)

    @property
    def is_moe(self) -> bool:
        return not self.named(*DENSE)

    @property
    def is_fp4(self) -> bool:
        return self.named("NVFP4", "-FP4")

    @property
    def is_hopper(self) -> bool:
        return GPUS[self.gpu].capability[0] == 9


def tensor_parallel(d: Draw) -> None:
    widths = (4, 8, 8, 8) if d.named(*WIDE) else (1, 2, 4, 8) if d.named(*MIDDLE) else (1, 1, 2, 4, 8)
    d.tp = d.chance.choice(widths)
    if d.maybe(0.95):
        d.add("--tp-size", d.tp)
    else:
        d.tp = 1


def nodes(d: Draw) -> None:
    if d.maybe(0.06):
        d.tp = 16
        d.words += ["--tp-size", "16"]
        d.add("--nnodes", 2)
        d.add("--node-rank", 0)
        d.add("--dist-init-addr", "10.0.0.1:5000")


def data_parallel(d: Draw) -> None:
    if d.tp > 1 and d.maybe(0.3):
        d.dp = d.chance.choice((d.tp, d.tp, max(2, d.tp // 2)))
        d.add("--dp-size", d.dp)
        d.add("--enable-dp-attention")
        if d.maybe(0.3):
            d.add("--enable-dp-lm-head")
        if d.maybe(0.2):
            d.add("--moe-dense-tp-size", 1)
    elif d.maybe(0.05) and d.tp < 16:
        d.add("--dp-size", 2)


def pipeline(d: Draw) -> None:
    if d.maybe(0.08) and d.tp <= 8:
        d.add("--pp-size", 2)


def all_to_all(d: Draw) -> None:
    if not d.is_moe or d.tp == 1:
        return
    if d.maybe(0.25):
        d.add("--ep-size", d.one((d.tp, d.tp, 2)))
    d.a2a = d.chance.choices((None, "deepep", "flashinfer", "mooncake", "nixl"), (84, 9, 5, 1, 1))[0]
    if d.a2a is None:
        return
    d.add("--moe-a2a-backend", d.a2a)
    if d.a2a == "deepep" and d.maybe(0.3):
        d.add("--deepep-mode", d.one(("normal", "low_latency", "auto")))
        d.add("--enable-two-batch-overlap")
    if d.a2a == "flashinfer" and d.dp == 1 and d.maybe(0.8):
        d.dp = d.tp
        d.add("--dp-size", d.tp)
        d.add("--enable-dp-attention")


def moe_runner(d: Draw) -> None:
    if not d.is_moe or not d.maybe(0.4):
        return
    backends = ["flashinfer_cutlass", "flashinfer_trtllm", "triton"]
    if d.is_fp4:
        backends += ["flashinfer_cutlass", "flashinfer_trtllm", "flashinfer_cutedsl", "cutlass"]
        backends += ["flashinfer_trtllm_routed", "marlin"]
    if d.named("gpt-oss"):
        backends += ["flashinfer_mxfp4", "flashinfer_mxfp4", "triton_kernel", "marlin"]
    if d.named("FP8", "DeepSeek"):
        backends += ["deep_gemm", "flashinfer_trtllm_routed", "cutlass"]
    d.add("--moe-runner-backend", d.one(backends))


def speculation(d: Draw) -> None:
    if not d.maybe(0.2):
        return
    if d.model == EAGLE3[0]:
        d.add("--speculative-algorithm", "EAGLE3")
        d.add("--speculative-draft-model-path", published()[EAGLE3[1]].path)
    elif d.named(*WITH_DRAFT_LAYERS):
        d.add("--speculative-algorithm", d.one(("EAGLE", "NEXTN", "EAGLE")))
    elif d.maybe(0.5):
        d.add("--speculative-algorithm", "NGRAM")
    elif d.named("Qwen3-32B"):
        d.add("--speculative-algorithm", "STANDALONE")
        d.add("--speculative-draft-model-path", published()["Qwen/Qwen3-30B-A3B"].path)
    if d.maybe(0.6):
        steps, topk, tokens = d.chance.choice(((3, 1, 4), (1, 1, 2), (5, 1, 6), (3, 4, 8), (2, 1, 3)))
        d.add("--speculative-num-steps", steps)
        d.add("--speculative-eagle-topk", topk)
        d.add("--speculative-num-draft-tokens", tokens)


def disaggregation(d: Draw) -> None:
    if d.maybe(0.1):
        d.add("--disaggregation-mode", d.one(("prefill", "decode")))


def memory(d: Draw) -> None:
    if d.maybe(0.25):
        d.add("--chunked-prefill-size", d.one((2048, 4096, 6144, 8192, 16384, 32768, -1)))
    if d.maybe(0.25):
        d.add("--max-running-requests", d.one((1, 32, 64, 128, 200, 256, 512, 1024, 2048)))
    if d.maybe(0.2):
        d.add("--mem-fraction-static", d.one((0.8, 0.85, 0.9)))
    if d.maybe(0.15):
        d.add("--context-length", d.one((8192, 32768)))
    if d.maybe(0.03):
        d.add("--max-total-tokens", 65536)
    if d.maybe(0.03):
        d.add("--max-prefill-tokens", 32768)


def graphs(d: Draw) -> None:
    if d.maybe(0.2):
        most = d.one((16, 64, 128, 200, 256, 512))
        new = "--cuda-graph-max-bs-decode"
        d.add(new if new in flags_of(d.release).by_name else "--cuda-graph-max-bs", most)
    for share, flag, *values in GRAPH_FLAGS:
        if d.maybe(share):
            d.add(flag, *values)


GRAPH_FLAGS: tuple[Any, ...] = (
    (0.05, "--disable-cuda-graph"),
    (0.02, "--disable-prefill-cuda-graph"),
    (0.02, "--disable-piecewise-cuda-graph"),
    (0.02, "--cuda-graph-bs-decode", 1, 4, 17),
    (0.02, "--cuda-graph-max-bs-prefill", 1024),
    (0.02, "--cuda-graph-backend-decode", "disabled"),
    (0.02, "--cuda-graph-backend-prefill", "disabled"),
    (0.02, "--disable-cuda-graph-padding"),
)


def attention(d: Draw) -> None:
    if d.maybe(0.12):
        usual = ["flashinfer", "triton", "fa3" if d.is_hopper else "trtllm_mha"]
        d.add("--attention-backend", d.one(usual))
    elif d.maybe(0.03):
        d.add("--prefill-attention-backend", "flashinfer")
        d.add("--decode-attention-backend", "triton")
    if d.maybe(0.15):
        d.add("--kv-cache-dtype", d.one(("fp8_e4m3", "fp8_e4m3", "fp8_e5m2", "bfloat16")))
    if d.maybe(0.05):
        d.add("--page-size", d.one((16, 32, 64)))


def precision(d: Draw) -> None:
    if d.maybe(0.05):
        d.add("--dtype", d.one(("half", "bfloat16", "auto", "float16")))
    if not d.maybe(0.25):
        return
    if d.is_fp4:
        d.add("--quantization", "modelopt_fp4")
    elif d.model.startswith("nvidia") and d.named("FP8"):
        d.add("--quantization", "modelopt_fp8")
    elif not d.named("FP8", "AWQ", "gpt-oss", "DeepSeek", "Kimi", "MiniMax"):
        d.add("--quantization", d.one(("fp8", "fp8", "modelopt_fp8", "mxfp8", "nvfp4_online")))


def switches(d: Draw) -> None:
    for share, flag, *values in SWITCHES:
        if d.maybe(share):
            d.add(flag, *values)


SWITCHES: tuple[Any, ...] = (
    (0.08, "--disable-radix-cache"),
    (0.03, "--enable-deterministic-inference"),
    (0.03, "--disable-flashinfer-autotune"),
    (0.04, "--flashinfer-autotune-skip-ops", "fp4_gemm"),
    (0.04, "--disable-shared-experts-fusion"),
    (0.05, "--enable-mixed-chunk"),
    (0.05, "--enable-torch-compile"),
    (0.05, "--disable-overlap-schedule"),
    (0.1, "--schedule-conservativeness", 0.3),
    (0.02, "--rl-on-policy-target", "fsdp"),
    (0.02, "--enable-waterfill"),
    (0.02, "--enable-hierarchical-cache"),
    (0.02, "--cpu-offload-gb", 8),
    (0.02, "--swa-full-tokens-ratio", 0.5),
    (0.02, "--fp4-gemm-backend", "flashinfer_cutlass"),
    (0.02, "--fp8-gemm-backend", "flashinfer_cutlass"),
    (0.01, "--sampling-backend", "pytorch"),
    (0.01, "--enable-eplb"),
    (0.01, "--attn-cp-size", 2),
    (0.01, "--dcp-size", 2),
    (0.01, "--json-model-override-args", '{"num_hidden_layers": 4}'),
)

PLAIN: tuple[Callable[[Draw], None], ...] = (tensor_parallel,)


def adapters(d: Draw) -> None:
    if d.maybe(0.02):
        d.add("--enable-lora")
        d.add("--max-lora-rank", 16)
        d.add("--lora-target-modules", "all")


SLIPS = {"--pp": 2, "--cuda-graph-max-bs": 64, "--tpsize": 8, "--kv-cache-dtpye": "fp8_e4m3"}


def slips(d: Draw) -> None:
    """Ambiguous in some releases, unknown in others."""
    if d.maybe(0.03):
        d.words += map(str, d.chance.choice(list(SLIPS.items())))


RULES: tuple[Callable[[Draw], None], ...] = (
    *(tensor_parallel, nodes, data_parallel, pipeline, all_to_all, moe_runner, speculation, disaggregation),
    *(memory, graphs, attention, precision, switches, adapters, slips),
)
