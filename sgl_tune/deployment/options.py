"""SGLang's own flag names, once, for every command that plans, checks or predicts a deployment.

Flags, a pasted server command, `sgl-tune.toml` and a manifest are all read into one record, `ServerFlags`.
A field is None when nobody set it: defaults are SGLang's and are resolved in `deployment`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from runtime.server.bounds import FLAGS, check_flags
from runtime.server.errors import ConfigError
from sgl_tune.cli.parameters import Argument, Option
from sgl_tune.deployment.completion import (
    Offer,
    architectures,
    choices,
    gpus,
    models,
    releases,
)
from sgl_tune.errors import UsageError

SERVER = "The server's flags (SGLang's names)"
TARGET = "The target"


def _server(*names: str, help: str, metavar: str | None = None, offers: Offer | None = None) -> Any:
    return _option(SERVER, names, help, metavar, offers or choices(names))


def _target(*names: str, help: str, metavar: str | None = None, offers: Offer | None = None) -> Any:
    return _option(TARGET, names, help, metavar, offers)


def _option(panel: str, names: tuple[str, ...], help: str, metavar: str | None, offers: Offer | None) -> Any:
    return Option(
        *names,
        help=help,
        metavar=metavar,
        rich_help_panel=panel,
        show_default=False,
        autocompletion=offers,
    )


TargetOption = Annotated[
    Path | None,
    Option("--target", metavar="ENV.JSON", help="The serving machine, as its `sgl-tune env` says."),
]
ServerCommand = Annotated[
    list[str] | None,
    Argument(
        metavar="[-- SERVER COMMAND]",
        help="After --: a server command as you start it; its flags are read as SGLang reads them.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class ServerFlags:
    """What was set, word for word."""

    model_path: Annotated[
        str | None,
        _server(
            "--model-path", "--model", help="Model, as typed at the server.", metavar="PATH|ID", offers=models
        ),
    ] = None
    tp: Annotated[
        int | None, _server("--tp-size", "--tp", "--tensor-parallel-size", help="Tensor-parallel ranks.")
    ] = None
    dp: Annotated[
        int | None, _server("--dp-size", "--dp", "--data-parallel-size", help="Data-parallel ranks.")
    ] = None
    pp: Annotated[
        int | None, _server("--pp-size", "--pp", "--pipeline-parallel-size", help="Pipeline stages.")
    ] = None
    ep: Annotated[
        int | None, _server("--ep-size", "--ep", "--expert-parallel-size", help="Expert-parallel ranks.")
    ] = None
    enable_dp_attention: Annotated[
        bool | None,
        _server(
            "--enable-dp-attention/--no-enable-dp-attention", help="One server; without it --dp is replicas."
        ),
    ] = None
    attn_dp: Annotated[
        int | None,
        _server(
            "--attn-dp-size", "--attention-data-parallel-size", help="DP attention's size (SGLang 0.5.23)."
        ),
    ] = None
    dtype: Annotated[str | None, _server("--dtype", help="auto, bfloat16, float16 ...")] = None
    quantization: Annotated[str | None, _server("--quantization", help="Used verbatim when set.")] = None
    kv_cache_dtype: Annotated[str | None, _server("--kv-cache-dtype", help="auto, fp8_e4m3 ...")] = None
    page_size: Annotated[int | None, _server("--page-size", help="Tokens per KV page.")] = None
    attention_backend: Annotated[str | None, _server("--attention-backend", help="fa3, triton ...")] = None
    moe_runner_backend: Annotated[
        str | None, _server("--moe-runner-backend", help="Used verbatim when set.")
    ] = None
    moe_a2a_backend: Annotated[
        str | None, _server("--moe-a2a-backend", help="none, deepep, flashinfer ...")
    ] = None
    chunked_prefill_size: Annotated[
        int | None, _server("--chunked-prefill-size", help="Tokens per prefill chunk.")
    ] = None
    max_running_requests: Annotated[
        int | None, _server("--max-running-requests", help="Requests of the server.")
    ] = None
    mem_fraction_static: Annotated[
        float | None, _server("--mem-fraction-static", help="Weights and KV share.")
    ] = None
    context_length: Annotated[int | None, _server("--context-length", help="Default: the model's.")] = None
    cuda_graph_max_bs: Annotated[
        int | None, _server("--cuda-graph-max-bs", "--cuda-graph-max-bs-decode", help="Largest decode graph.")
    ] = None
    disable_cuda_graph: Annotated[bool | None, _server("--disable-cuda-graph", help="Capture no graphs.")] = (
        None
    )
    disable_flashinfer_autotune: Annotated[
        bool | None, _server("--disable-flashinfer-autotune", help="The server tunes nothing.")
    ] = None
    speculative_algorithm: Annotated[
        str | None, _server("--speculative-algorithm", help="EAGLE, EAGLE3, NEXTN ...")
    ] = None
    speculative_num_steps: Annotated[int | None, _server("--speculative-num-steps", help="Draft steps.")] = (
        None
    )
    speculative_eagle_topk: Annotated[
        int | None, _server("--speculative-eagle-topk", help="Draft branches.")
    ] = None
    speculative_num_draft_tokens: Annotated[
        int | None, _server("--speculative-num-draft-tokens", help="Tokens verified at once.")
    ] = None
    speculative_draft_model_path: Annotated[
        str | None,
        _server("--speculative-draft-model-path", "--speculative-draft-model", help="Draft model."),
    ] = None
    disaggregation_mode: Annotated[
        str | None, _server("--disaggregation-mode", help="null, prefill or decode.")
    ] = None
    skip_ops: Annotated[
        list[str] | None, _server("--flashinfer-autotune-skip-ops", help="Ops the server leaves untuned.")
    ] = None
    nnodes: Annotated[int | None, _server("--nnodes", help="Nodes.")] = None
    node_rank: Annotated[int | None, _server("--node-rank", help="This node.")] = None
    dist_init_addr: Annotated[
        str | None,
        _server("--dist-init-addr", "--nccl-init-addr", help="Node 0's host:port.", metavar="HOST:PORT"),
    ] = None
    model_config: Annotated[
        str | None,
        _target(
            "--model-config",
            help="The model's config.json, or a preset.",
            metavar="FILE|PRESET",
            offers=models,
        ),
    ] = None
    cache_dir: Annotated[
        str | None,
        _target("--cache-dir", help="Default: $SGLANG_CACHE_DIR or ~/.cache/sglang.", metavar="DIR"),
    ] = None
    sglang_version: Annotated[
        str | None,
        _target(
            "--sglang-version",
            help="Default: the installed one, else the newest known.",
            metavar="X.Y.Z",
            offers=releases,
        ),
    ] = None
    flashinfer_version: Annotated[
        str | None,
        _target("--flashinfer-version", help="Default: the installed one, else SGLang's.", metavar="X.Y.Z"),
    ] = None
    gpu: Annotated[
        str | None,
        _target("--gpu", help="Default: this machine's.", metavar="h100|h200|b200|...", offers=gpus),
    ] = None
    arch: Annotated[
        str | None,
        _target(
            "--arch", help="Default: this machine's GPU.", metavar="sm90|sm100|...", offers=architectures
        ),
    ] = None

    def __post_init__(self) -> None:
        try:
            check_flags(self, FLAGS)
        except ConfigError as error:
            raise UsageError(error.message) from None

    def given(self) -> dict[str, Any]:
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}


# Not the server's: which versions, GPU and files are meant.
TARGET_FIELDS = frozenset(
    ("model_config", "cache_dir", "sglang_version", "flashinfer_version", "gpu", "arch")
)


@functools.cache
def flag_names() -> dict[str, str]:
    """Every spelling of a flag -> its field: `--tp-size`, `--tp`, `--tensor-parallel-size` -> `tp`."""
    names = {}
    for field, hint in get_type_hints(ServerFlags, include_extras=True).items():
        for declared in hint.__metadata__[0].names:
            names.update(dict.fromkeys(declared.split("/"), field))
    return names


@functools.cache
def flag_types() -> dict[str, type]:
    """Field -> bool, int, float, str or list."""
    types = {}
    for field, hint in get_type_hints(ServerFlags).items():
        kind = next(kind for kind in get_args(hint) if kind is not type(None))
        types[field] = get_origin(kind) or kind
    return types
