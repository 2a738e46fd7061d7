"""What a server shows to the outside. srt/arg_groups/serving_hook.py, validation_hook.py
(before, srt/server_args.py)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from runtime.server.checks.row import Refusal, above, apart, at_least, needs, under
from runtime.server.choices import Choices
from runtime.server.traits import is_disaggregated

_MODALITIES = {"image", "video", "audio"}
_WATERMARKED = (None, "NGRAM", "EAGLE", "EAGLE3")
_STORES = ("s3://", "gs://", "az://")


def _name(c: Choices) -> str:
    return str(c.served_model_name or c.model_path)


def _legacy_grpc(c: Choices) -> bool:
    return bool(c.smg_grpc_mode or c.grpc_mode)


def _number(text: Any, kind: type[float] | type[int] = float) -> float:
    """As Python reads it; what it cannot read is no number, which is above nothing."""
    try:
        return kind(str(text))
    except ValueError:
        return math.nan


def _is_bad_rule(rule: Sequence[Any] | None) -> bool:
    """Of buckets: default | tse MIDDLE BASE COUNT | custom NUMBER..."""
    if not rule:
        return False
    kind, *told = rule
    if kind == "tse" and len(told) == 3:
        middle, base, count = told
        return not (_number(middle) > 0 and _number(base) > 1 and _number(count, int) > 0)
    if kind == "custom" and told:
        numbers = [_number(one) for one in told]
        return len(set(numbers)) < len(numbers) or not all(one >= 0 for one in numbers)
    return kind != "default" or bool(told)


_TLS = (
    needs("ssl_keyfile", "ssl_certfile"),
    needs("ssl_certfile", "ssl_keyfile"),
    needs("ssl_ca_certs", "ssl_certfile"),
    needs("ssl_keyfile_password", "ssl_keyfile"),
    needs("enable_ssl_refresh", "ssl_certfile"),
)
_HTTP2 = (
    Refusal(
        lambda c: c.tokenizer_worker_num > 1,
        "[enable_http2] does not go with [tokenizer_worker_num]",
        until=(0, 5, 14),
    ),
    Refusal(
        lambda c: (
            c.http2_max_concurrent_streams is not None and not 0 < c.http2_max_concurrent_streams < 1 << 32
        ),
        "[http2_max_concurrent_streams]: 1 to 4294967295 is possible",
    ),
    Refusal(
        lambda c: (
            c.http2_initial_connection_window_size is not None
            and not 1024 <= c.http2_initial_connection_window_size < 1 << 31
        ),
        "[http2_initial_connection_window_size]: 1024 to 2147483647 is possible",
    ),
    apart("enable_http2", "enable_ssl_refresh"),
)
_NATIVE_GRPC = (
    apart("grpc_port", "use_ray"),
    apart("grpc_port", "encoder_only"),
    Refusal(lambda c: c.tokenizer_worker_num > 1, "[grpc_port] does not go with [tokenizer_worker_num]"),
    Refusal(
        lambda c: c.api_key or c.admin_api_key, "[grpc_port] does not go with --api-key or --admin-api-key"
    ),
    Refusal(lambda c: c.grpc_port == c.port, "[grpc_port] is the port of [port]"),
)
_SIDECAR = (
    Refusal(lambda c: not c.sidecar.strip(), "[sidecar] is empty"),
    Refusal(_legacy_grpc, "[sidecar] does not go with --smg-grpc-mode"),
    needs("sidecar", "grpc_port"),
)
_WATERMARK = (
    apart("enable_watermark", "enable_custom_logit_processor"),
    apart("enable_watermark", "dllm_algorithm"),
    Refusal(is_disaggregated, "[enable_watermark] does not go with [disaggregation_mode]"),
    Refusal(
        lambda c: c.speculative_algorithm not in _WATERMARKED,
        "[enable_watermark] does not go with [speculative_algorithm]",
    ),
    apart("enable_watermark", "speculative_use_rejection_sampling"),
)  # fmt: skip
_PORTS = (
    Refusal(lambda c: c.grpc_port is not None and not 1 <= c.grpc_port <= 65535, "[grpc_port] is no port"),
    needs("sidecar_args", "sidecar"),
    *under(lambda c: c.sidecar is not None, _SIDECAR),
    *under(lambda c: c.grpc_port is not None and not _legacy_grpc(c), _NATIVE_GRPC),
)
_COUNTS = (
    above(0, "asr_max_buffer_seconds"),
    above(0, "asr_max_concurrent_sessions"),
    at_least(0, "mm_preprocess_cache_size_mb"),
    above(0, "grpc_response_timeout_secs"),
    at_least(1, "tokenizer_worker_num"),
    at_least(1, "detokenizer_worker_num"),
    at_least(0, "mm_processor_worker_num"),
    at_least(0, "mm_io_worker_num"),
    at_least(0, "schedule_conservativeness"),
    at_least(0, "prefill_decode_interval"),
    at_least(0, "prefill_decode_interval_min_bs"),
    above(0, "sampling_mask_max_tokens"),
    at_least(0, "media_url_max_file_size_mb"),
)

ROWS = (
    *_TLS,
    Refusal(
        lambda c: c.enable_http_worker_reuseport and (c.tokenizer_worker_num == 1 or c.enable_http2),
        "[enable_http_worker_reuseport] needs --tokenizer-worker-num above 1, and no --enable-http2",
    ),
    *under(lambda c: c.enable_http2, _HTTP2),
    *_COUNTS,
    Refusal(
        lambda c: (
            c.mm_process_config is not None
            and (
                not isinstance(c.mm_process_config, dict)
                or any(not isinstance(c.mm_process_config.get(one, {}), dict) for one in _MODALITIES)
            )
        ),
        "[mm_process_config] is no JSON object of objects",
    ),
    Refusal(
        lambda c: c.disable_fast_image_processor and c.image_processor_backend not in ("auto", "pil"),
        "[disable_fast_image_processor] does not go with [image_processor_backend]",
    ),
    *_PORTS,
    Refusal(
        lambda c: (
            isinstance(c.limit_mm_data_per_request, dict) and set(c.limit_mm_data_per_request) - _MODALITIES
        ),
        "[limit_mm_data_per_request]: only image, video and audio can be limited",
    ),
    Refusal(
        lambda c: isinstance(c.default_chat_template_kwargs, (list, str, int)),
        "[default_chat_template_kwargs] is no JSON object",
    ),
    apart("enable_tokenizer_batch_encode", "enable_dynamic_batch_tokenizer"),
    Refusal(
        lambda c: c.mm_feature_transport == "cuda_vmm" and c.pp_size != 1 and not c.encoder_only,
        "[mm_feature_transport] does not go with [pp_size]",
    ),
    Refusal(
        lambda c: c.mm_feature_transport == "cuda_ipc" and c.nnodes != 1 and not c.encoder_only,
        "[mm_feature_transport] does not go with [nnodes]",
    ),
    Refusal(
        lambda c: c.keep_mm_feature_on_device and c.mm_feature_transport not in (None, "cuda_ipc"),
        "[keep_mm_feature_on_device] does not go with [mm_feature_transport]",
    ),
    Refusal(
        lambda c: ":" in _name(c) and not _name(c).lower().startswith(_STORES),
        "[served_model_name]: a colon stands before an adapter",
        "--served-model-name without one",
    ),
    Refusal(
        lambda c: c.enable_priority_scheduling and c.schedule_policy not in ("fcfs", "lof"),
        "[enable_priority_scheduling] does not go with [schedule_policy]",
        "--schedule-policy fcfs or lof",
    ),
    Refusal(
        lambda c: c.retraction_policy == "priority" and not c.enable_priority_scheduling,
        "[retraction_policy] needs --enable-priority-scheduling",
    ),
    needs("tokenizer_metrics_allowed_custom_labels", "tokenizer_metrics_custom_labels_header"),
    needs("export_metrics_to_file", "export_metrics_to_file_dir"),
    Refusal(lambda c: c.gc_threshold and len(c.gc_threshold) > 3, "[gc_threshold]: 1 to 3 are possible"),
    Refusal(
        lambda c: c.kv_canary_sweep_interval > 0 and c.kv_canary == "none",
        "[kv_canary_sweep_interval] needs --kv-canary log or raise",
    ),
    Refusal(lambda c: _is_bad_rule(c.prompt_tokens_buckets), "[prompt_tokens_buckets] is no rule"),
    Refusal(lambda c: _is_bad_rule(c.generation_tokens_buckets), "[generation_tokens_buckets] is no rule"),
    Refusal(
        lambda c: (
            (c.load_publish_endpoint or "off").strip().lower() not in ("", "off") and not c.kv_events_config
        ),
        "[load_publish_endpoint] needs --kv-events-config",
    ),
    Refusal(
        lambda c: c.enable_response_store and is_disaggregated(c),
        "[enable_response_store] does not go with [disaggregation_mode]",
    ),
    needs("watermark_config", "enable_watermark"),
    *under(lambda c: c.enable_watermark, _WATERMARK),
    Refusal(lambda c: c.quantize_and_serve, "[quantize_and_serve] is switched off in this release"),
    Refusal(lambda c: c.model_impl == "mindspore", "[model_impl] is for NPUs only"),
    Refusal(
        lambda c: c.weight_cache_mode not in (None, "off") and c.speculative_algorithm is not None,
        "[weight_cache_mode] does not go with [speculative_algorithm]",
    ),
)
