"""LoRA adapters. check_lora_server_args of srt/arg_groups/lora_hook.py (before, of srt/server_args.py)."""

from __future__ import annotations

from runtime.server.checks.row import Refusal, at_least, under
from runtime.server.choices import Choices
from runtime.server.traits import has_adapters

_DRAFTED = (None, "NGRAM", "EAGLE", "EAGLE3", "DFLASH", "DSPARK")


def _second_version(name: str) -> tuple[Refusal, ...]:
    return (
        Refusal(lambda c: c.attn_dp_size > 1, f"[{name}] does not go with DP attention"),
        Refusal(lambda c: c.enable_pdmux, f"[{name}] does not go with [enable_pdmux]"),
        Refusal(
            lambda c: c.enable_two_batch_overlap, f"[{name}] does not go with [enable_two_batch_overlap]"
        ),
    )


def _runs_on_lora(c: Choices) -> bool:
    return bool(c.moe_runner_backend.startswith("lora_"))


_ENABLED = (
    Refusal(
        lambda c: (
            c.enable_lora_overlap_loading
            and (c.max_loaded_loras is None or c.max_loaded_loras > 2 * c.max_loras_per_batch)
        ),
        "[enable_lora_overlap_loading] needs --max-loaded-loras, at most twice [max_loras_per_batch]",
    ),
    Refusal(
        lambda c: c.speculative_algorithm not in (None, "NGRAM"),
        "LoRA adapters do not go with [speculative_algorithm]",
        until=(0, 5, 19),
    ),
    Refusal(
        lambda c: c.speculative_algorithm not in _DRAFTED,
        "LoRA adapters do not go with [speculative_algorithm]",
    ),
    Refusal(
        lambda c: c.speculative_algorithm not in (None, "NGRAM") and c.speculative_adaptive,
        "LoRA adapters do not go with [speculative_adaptive]",
    ),
    Refusal(
        lambda c: (
            c.speculative_algorithm not in (None, "NGRAM")
            and "experimental_sgl_trtllm" in (c.moe_runner_backend, c.speculative_moe_runner_backend)
        ),
        "LoRA adapters under speculation do not run on experimental_sgl_trtllm",
    ),
    Refusal(
        lambda c: "all" in (c.lora_target_modules or ()) and len(set(c.lora_target_modules)) > 1,
        "[lora_target_modules]: `all` stands alone",
    ),
    Refusal(
        lambda c: not c.lora_paths and not (c.max_lora_rank and c.lora_target_modules),
        "[enable_lora] needs --lora-paths, or --max-lora-rank and --lora-target-modules",
    ),
    Refusal(
        lambda c: c.max_loaded_loras is not None and c.max_loaded_loras < c.max_loras_per_batch,
        "[max_loaded_loras] is less than [max_loras_per_batch]",
    ),
    Refusal(
        lambda c: c.max_loaded_loras is not None and len(c.lora_paths or ()) > c.max_loaded_loras,
        "[max_loaded_loras] is less than the adapters of [lora_paths]",
    ),
    at_least(0, "lora_drain_wait_threshold"),
)
_RUNNER = (
    Refusal(lambda c: not has_adapters(c), "[moe_runner_backend] needs --enable-lora"),
    Refusal(lambda c: c.lora_backend != "triton_v2", "[moe_runner_backend] needs --lora-backend triton_v2"),
    *_second_version("moe_runner_backend"),
    Refusal(
        lambda c: c.quantization not in (None, "fp8", "modelopt_fp4"),
        "[moe_runner_backend] does not go with [quantization]",
    ),
    Refusal(
        lambda c: c.quantization == "modelopt_fp4" and c.moe_runner_backend != "lora_marlin",
        "[moe_runner_backend] does not go with [quantization]",
        "--moe-runner-backend lora_marlin",
    ),
    Refusal(lambda c: c.moe_a2a_backend != "none", "[moe_runner_backend] does not go with [moe_a2a_backend]"),
    Refusal(lambda c: c.ep_join_mode is not None, "[moe_runner_backend] with [ep_join_mode]"),
    Refusal(
        lambda c: c.enable_eplb or c.init_expert_location != "trivial" or c.ep_num_redundant_experts > 0,
        "[moe_runner_backend] wants every expert in its place",
    ),
)

ROWS = (
    at_least(1, "max_loras_per_batch"),
    *under(has_adapters, _ENABLED),
    *under(
        lambda c: has_adapters(c) and c.lora_backend == "triton_v2" and not _runs_on_lora(c),
        _second_version("lora_backend"),
    ),
    Refusal(
        lambda c: (
            c.speculative_algorithm is not None
            and (c.asked.speculative_moe_runner_backend or "").startswith("lora_")
        ),
        "[speculative_moe_runner_backend] does not draft",
    ),
    *under(_runs_on_lora, _RUNNER),
)
