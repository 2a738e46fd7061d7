"""Tables of the flags of a pasted command that need more than the start itself. Only data.

A flag in none of these tables is passed on. The cage (`runtime.ghost.inside.cage`) would stop all of them
anyway; the tables only make the answer quick, and name the flag.
"""

from collections.abc import Mapping


def _table(why: str, names: str) -> dict[str, str]:
    return {f"--{name}": why for name in names.split()}


REFUSED: Mapping[str, str] = {
    **_table(
        "it imports code that the command names", "custom-weight-loader forward-hooks msprobe-dump-config"
    ),
    **_table("it imports code that the command names", "custom-sigquit-handler debug-tensor-dump-inject"),
    **_table("it starts another program", "sidecar sidecar-args use-ray"),
    **_table(
        "it loads code of a plugin",
        "enable-unified-cache-external-linker unified-cache-external-linker-backend"
        " unified-cache-external-linker-config",
    ),
    **_table("it loads code of a plugin", "radix-cache-backend enable-lmcache lmcache-config-file"),
    **_table("it loads code of a plugin", "enable-flexkv flexkv-config-file"),
    **_table(
        "it writes a checkpoint",
        "modelopt-checkpoint-restore-path modelopt-checkpoint-save-path modelopt-export-path"
        " quantize-and-serve",
    ),
    **_table("it needs real weights", "rl-quant-profile kt-weight-path"),
    **_table(
        "it needs other servers that run",
        "decoupled-spec-bind-endpoint decoupled-spec-connect-endpoints decoupled-spec-role"
        " decoupled-spec-rank weight-cache-socket",
    ),
    **_table("it writes every tensor to a file", "debug-tensor-dump-output-folder debug-tensor-dump-layers"),
    **_table("it reads tensors from a file", "debug-tensor-dump-input-file"),
    **_table("its file has not been read", "config"),
    **_table("it starts nothing", "help"),
}

# Serving, and fetching weights. They take no GPU memory before the server is ready.
DROPPED: Mapping[str, str] = {
    **_table(
        "no port is opened",
        "host port grpc-port grpc-mode smg-grpc-mode smg-http-sidecar-port grpc-http-sidecar-port"
        " enable-http2 http2-max-concurrent-streams http2-initial-connection-window-size"
        " enable-http-worker-reuseport grpc-response-timeout-secs gated-launch-port load-publish-endpoint"
        " fastapi-root-path nccl-port ssl-keyfile ssl-certfile ssl-ca-certs ssl-keyfile-password"
        " enable-ssl-refresh tool-server encoder-urls encoder-register-urls encoder-bootstrap-port"
        " engine-info-bootstrap-port kv-events-config enable-forward-pass-metrics"
        " forward-pass-metrics-worker-id forward-pass-metrics-ipc-name uvicorn-access-log-exclude-prefixes",
    ),
    **_table(
        "nothing is measured while it serves",
        "enable-metrics enable-mfu-metrics enable-metrics-for-all-schedulers enable-trace trace-modules"
        " otlp-traces-endpoint otlp-service-name export-metrics-to-file export-metrics-to-file-dir"
        " extra-metric-labels tokenizer-metrics-custom-labels-header tokenizer-metrics-allowed-custom-labels"
        " prompt-tokens-buckets generation-tokens-buckets bucket-time-to-first-token"
        " bucket-inter-token-latency bucket-e2e-request-latency enable-request-time-stats-logging"
        " collect-tokens-histogram load-snapshot-publish-interval",
    ),
    **_table(
        "no file is written",
        "log-requests log-requests-target log-requests-level log-requests-format crash-dump-folder"
        " file-storage-path spec-trace-dir",
    ),
    **_table("it holds a secret", "api-key admin-api-key"),
    **_table("it names devices of the server's own network", "disaggregation-ib-device mooncake-ib-device"),
    **_table(
        "no request is read",
        "enable-custom-logit-processor chat-template hf-chat-template-name completion-template warmups"
        " default-chat-template-kwargs tokenizer-path tokenizer-mode tokenizer-backend tokenizer-worker-num"
        " detokenizer-worker-num tool-call-parser reasoning-parser skip-tokenizer-init skip-server-warmup"
        " grammar-backend trust-request-chat-template enable-response-store",
    ),
    **_table(
        "weights are not loaded",
        "load-format speculative-draft-load-format model-loader-extra-config download-dir revision"
        " speculative-draft-model-revision model-checksum delete-ckpt-after-loading modelexpress-config"
        " weight-loader-disable-mmap weight-loader-prefetch-checkpoints weight-loader-prefetch-num-threads"
        " weight-loader-drop-cache-after-load remote-instance-weight-loader-seed-instance-ip"
        " remote-instance-weight-loader-seed-instance-service-port remote-instance-weight-loader-backend"
        " remote-instance-weight-loader-send-weights-group-ports"
        " remote-instance-weight-loader-start-seed-via-transfer-engine"
        " checkpoint-engine-wait-weights-before-ready",
    ),
    **_table("no store is asked", "hicache-storage-backend hicache-storage-backend-extra-config"),
}

# The value must be a folder on this machine with a config.json, not an id to download.
MODELS = frozenset({"--model-path", "--model", "--speculative-draft-model-path", "--speculative-draft-model"})

# The value may be the name of a file on this machine, which is read as data, or JSON, or a word.
FILES = frozenset(
    _table(
        "it is data",
        "quantization-param-path decrypted-config-file decrypted-draft-config-file speculative-token-map"
        " speculative-dspark-sps-table-path speculative-dspark-confidence-sts-path torchao-config"
        " speculative-adaptive-config speculative-ngram-external-corpus-path init-expert-location"
        " deepep-config dllm-algorithm-config pdmux-config-path",
    )
)

# Kept, with the address replaced by loopback.
ADDRESSES = frozenset({"--dist-init-addr", "--nccl-init-addr"})

# Members that --json-model-override-args may not set, because they name code or another model.
OVERRIDES_REFUSED = frozenset(
    {"auto_map", "_name_or_path", "name_or_path", "trust_remote_code", "code_revision", "custom_pipelines"}
)

# Flags whose names are also the beginning of another flag's name.
WHOLE_NAMES = frozenset({"--model", "--quantization", "--speculative-adaptive", "--dllm-algorithm"})
