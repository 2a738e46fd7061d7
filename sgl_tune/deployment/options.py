"""SGLang's own flag names, once, for every command that plans, checks or predicts a deployment.

Flags, a pasted server command, `sgl-tune.toml` and a manifest are all read into one record, `ServerFlags`.
A field is None when nobody set it: defaults are SGLang's and are resolved in `deployment`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from runtime.server.backends import BACKENDS
from runtime.server.bounds import FLAGS, check_flags, is_number
from runtime.server.errors import ConfigError
from runtime.sglang.releases import Release
from sgl_tune.cli.parameters import Argument, Option
from sgl_tune.deployment.completion import Offer, architectures, gpus, models, one_of, releases
from sgl_tune.errors import UsageError

PROJECT_FILE = "sgl-tune.toml"
SERVER = "The server's flags (SGLang's names)"
TARGET = "The target"
_Text = str | None
_Number = int | None
_Share = float | None
_Switch = bool | None
_Texts = list[str] | None


def _server(names: str, help: str, offers: Offer | None = None, metavar: str | None = None) -> Any:
    return _option(SERVER, names, help, offers, metavar)


def _target(names: str, help: str, metavar: str, offers: Offer | None = None) -> Any:
    return _option(TARGET, names, help, offers, metavar)


def _option(panel: str, names: str, help: str, offers: Offer | None, metavar: str | None) -> Any:
    told: dict[str, Any] = {"rich_help_panel": panel, "show_default": False, "autocompletion": offers}
    return Option(*names.split(), help=help, metavar=metavar, **told)


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
        _Text, _server("--model-path --model", "Model, as typed at the server.", models, "PATH|ID")
    ] = None
    tp: Annotated[_Number, _server("--tp-size --tp --tensor-parallel-size", "Tensor-parallel ranks.")] = None
    dp: Annotated[_Number, _server("--dp-size --dp --data-parallel-size", "Data-parallel ranks.")] = None
    pp: Annotated[_Number, _server("--pp-size --pp --pipeline-parallel-size", "Pipeline stages.")] = None
    ep: Annotated[_Number, _server("--ep-size --ep --expert-parallel-size", "Expert-parallel ranks.")] = None
    enable_dp_attention: Annotated[
        _Switch, _server("--enable-dp-attention/--no-enable-dp-attention", "One server, no replicas.")
    ] = None
    attn_dp: Annotated[
        _Number, _server("--attn-dp-size --attention-data-parallel-size", "DP attention's size.")
    ] = None
    enable_dp_lm_head: Annotated[
        _Switch, _server("--enable-dp-lm-head", "A head for each of DP attention's ranks.")
    ] = None
    moe_dense_tp_size: Annotated[
        _Number, _server("--moe-dense-tp-size", "Ranks of dense MLPs: 1 or all.")
    ] = None
    dtype: Annotated[
        _Text, _server("--dtype", "auto, bfloat16, float16 ...", one_of("auto bfloat16 float16"))
    ] = None
    quantization: Annotated[
        _Text,
        _server("--quantization", "Used verbatim when set.", one_of("fp8 modelopt_fp8 modelopt_fp4 mxfp4")),
    ] = None
    kv_cache_dtype: Annotated[
        _Text, _server("--kv-cache-dtype", "auto, fp8_e4m3 ...", one_of("auto fp8_e4m3 fp8_e5m2 bfloat16"))
    ] = None
    page_size: Annotated[_Number, _server("--page-size", "Tokens per KV page.")] = None
    attention_backend: Annotated[_Text, _server("--attention-backend", "fa3, triton ...")] = None
    prefill_attention_backend: Annotated[
        _Text, _server("--prefill-attention-backend", "Of prefills alone.")
    ] = None
    decode_attention_backend: Annotated[_Text, _server("--decode-attention-backend", "Of decodes alone.")] = (
        None
    )
    moe_runner_backend: Annotated[
        _Text, _server("--moe-runner-backend", "Used verbatim when set.", one_of(BACKENDS))
    ] = None
    moe_a2a_backend: Annotated[
        _Text, _server("--moe-a2a-backend", "none or flashinfer.", one_of("none flashinfer"))
    ] = None
    fp4_gemm_runner_backend: Annotated[
        _Text, _server("--fp4-gemm-backend --fp4-gemm-runner-backend", "Of nvfp4 GEMMs.")
    ] = None
    fp8_gemm_runner_backend: Annotated[
        _Text, _server("--fp8-gemm-backend --fp8-gemm-runner-backend", "Of fp8 GEMMs.")
    ] = None
    chunked_prefill_size: Annotated[
        _Number, _server("--chunked-prefill-size", "Tokens per prefill chunk.")
    ] = None
    max_prefill_tokens: Annotated[
        _Number, _server("--max-prefill-tokens", "Tokens of a prefill without chunks.")
    ] = None
    max_running_requests: Annotated[_Number, _server("--max-running-requests", "Requests of the server.")] = (
        None
    )
    max_total_tokens: Annotated[_Number, _server("--max-total-tokens", "KV tokens of a rank, at most.")] = (
        None
    )
    mem_fraction_static: Annotated[_Share, _server("--mem-fraction-static", "Weights and KV share.")] = None
    swa_full_tokens_ratio: Annotated[
        _Share, _server("--swa-full-tokens-ratio", "KV tokens of layers behind a window.")
    ] = None
    context_length: Annotated[_Number, _server("--context-length", "Default: the model's.")] = None
    cuda_graph_max_bs: Annotated[
        _Number, _server("--cuda-graph-max-bs-decode --cuda-graph-max-bs", "Largest decode graph.")
    ] = None
    cuda_graph_bs: Annotated[
        _Texts, _server("--cuda-graph-bs-decode --cuda-graph-bs", "Each decode graph.")
    ] = None
    disable_cuda_graph: Annotated[_Switch, _server("--disable-cuda-graph", "Capture no graphs.")] = None
    disable_prefill_cuda_graph: Annotated[
        _Switch, _server("--disable-prefill-cuda-graph", "None of prefills.")
    ] = None
    disable_radix_cache: Annotated[_Switch, _server("--disable-radix-cache", "Keep no prefixes.")] = None
    disable_custom_all_reduce: Annotated[_Switch, _server("--disable-custom-all-reduce", "NCCL alone.")] = (
        None
    )
    disable_shared_experts_fusion: Annotated[
        _Switch, _server("--disable-shared-experts-fusion", "Shared experts apart.")
    ] = None
    disable_flashinfer_autotune: Annotated[
        _Switch, _server("--disable-flashinfer-autotune", "The server tunes nothing.")
    ] = None
    skip_ops: Annotated[
        _Texts, _server("--flashinfer-autotune-skip-ops", "Ops the server leaves untuned.")
    ] = None
    speculative_algorithm: Annotated[
        _Text, _server("--speculative-algorithm", "EAGLE or NEXTN.", one_of("EAGLE NEXTN"))
    ] = None
    speculative_num_steps: Annotated[_Number, _server("--speculative-num-steps", "Draft steps.")] = None
    speculative_eagle_topk: Annotated[_Number, _server("--speculative-eagle-topk", "Draft branches.")] = None
    speculative_num_draft_tokens: Annotated[
        _Number, _server("--speculative-num-draft-tokens", "Tokens verified at once.")
    ] = None
    speculative_draft_model_path: Annotated[
        _Text, _server("--speculative-draft-model-path --speculative-draft-model", "Draft model.")
    ] = None
    disaggregation_mode: Annotated[
        _Text, _server("--disaggregation-mode", "null, prefill or decode.", one_of("null prefill decode"))
    ] = None
    nnodes: Annotated[_Number, _server("--nnodes", "Nodes.")] = None
    node_rank: Annotated[_Number, _server("--node-rank", "This node.")] = None
    dist_init_addr: Annotated[
        _Text, _server("--dist-init-addr --nccl-init-addr", "Node 0's host:port.", None, "HOST:PORT")
    ] = None
    model_config: Annotated[
        _Text, _target("--model-config", "The model's config.json, or a preset.", "FILE|PRESET", models)
    ] = None
    cache_dir: Annotated[
        _Text, _target("--cache-dir", "Default: $SGLANG_CACHE_DIR or ~/.cache/sglang.", "DIR")
    ] = None
    sglang_version: Annotated[
        _Text, _target("--sglang-version", "Default: the installed one, else the core's.", "X.Y.Z", releases)
    ] = None
    flashinfer_version: Annotated[
        _Text, _target("--flashinfer-version", "Default: the installed one, else SGLang's.", "X.Y.Z")
    ] = None
    gpu: Annotated[_Text, _target("--gpu", "Default: this machine's.", "h100|h200|b200|...", gpus)] = None
    arch: Annotated[
        _Text, _target("--arch", "Default: this machine's GPU.", "sm90|sm100|...", architectures)
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
# Ours -> SGLang's own names.
_ASKED = {"tp": "tp_size", "dp": "dp_size", "pp": "pp_size", "ep": "ep_size", "attn_dp": "attn_dp_size"}
_ASKED |= {"skip_ops": "flashinfer_autotune_skip_ops"}
_BY_PHASE = (0, 5, 14)  # since when graphs of prefills and of decodes have flags of their own


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


def given_by(flags: ServerFlags) -> dict[str, Any]:
    """What of them is the server's, by SGLang's names for its arguments."""
    ours = TARGET_FIELDS | {"dist_init_addr", "speculative_draft_model_path"}
    for size in flags.cuda_graph_bs or ():
        if not is_number(size):
            raise UsageError(f"--cuda-graph-bs {size[:80]}: whole numbers are needed")
    sizes = [int(size) for size in flags.cuda_graph_bs or ()]
    flags = replace(flags, cuda_graph_bs=None) if sizes else flags
    given = {"cuda_graph_bs": sizes} if sizes else {}
    return given | {
        _ASKED.get(name, name): value for name, value in flags.given().items() if name not in ours
    }


def spelled(release: Release, argument: str, value: Any) -> str:
    """`--tp-size 8`, or the flag alone where it takes no value, by SGLang's name for the argument."""
    own, ours = f"--{argument.replace('_', '-')}", {of: name for name, of in _ASKED.items()}
    field = ours.get(argument, argument)
    name = next((name for name, of in flag_names().items() if of == field), own)
    if release.number < _BY_PHASE:
        name = name.replace("-decode", "") if name.startswith("--cuda-graph") else name
    return name if value is True else f"{name} {value}"
