"""What a server's explanation is made of: a row a value, in the order in which people read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from runtime.server.asked import Asked
from runtime.server.flags import CommandLine
from runtime.server.shape import Server

AS_SET, DEFAULT = "as set", "the default"
_GRAPHS = ("cuda_graph_max_bs", "cuda_graph_bs", "disable_cuda_graph", "cuda_graph_config")
_OF_PHASE = ("cuda_graph_max_bs_{0}", "cuda_graph_bs_{0}", "cuda_graph_backend_{0}", "disable_{0}_cuda_graph")
_PIECEWISE = (
    *("disable_piecewise_cuda_graph", "enforce_piecewise_cuda_graph"),
    *("piecewise_cuda_graph_max_tokens", "piecewise_cuda_graph_tokens"),
)


@dataclass(frozen=True, slots=True)
class Field:
    """`name`: in the dry run's `server`, or an argument. `plain` goes without saying. `arguments`: those
    that decide it, where it is not just the one of its name."""

    name: str
    group: str
    plain: Any = None
    arguments: tuple[str, ...] = ()
    words: str = ""

    @property
    def decided_by(self) -> tuple[str, ...]:
        return self.arguments or (self.name,)

    def label(self, line: CommandLine) -> str:
        flag = line.by_field.get(self.name)
        return self.words or (flag.name if flag else self.name.replace("_", " "))


def _phase(phase: str, *more: str) -> tuple[str, ...]:
    return (*_GRAPHS, *(name.format(phase) for name in _OF_PHASE), *more)


FIELDS = (
    Field("config_class", "model", words="config class"),
    Field("dtype", "model"),
    Field("quantization", "model"),
    Field("model_quantization", "model", arguments=("quantization",), words="weights"),
    Field("context_length", "model"),
    Field("tp_size", "parallel", 1),
    Field("pp_size", "parallel", 1),
    Field("dp_size", "parallel", 1),
    Field(
        *("attn_dp_size", "parallel", 1),
        arguments=("attn_dp_size", "enable_dp_attention", "dp_size"),
        words="attention DP",
    ),
    Field("ep_size", "parallel", 1),
    Field("mem_fraction_static", "memory"),
    Field("kv_cache_dtype", "memory"),
    Field("page_size", "memory", 1),
    Field("chunked_prefill_size", "memory"),
    Field("max_running_requests", "memory", plain=""),
    Field("dummy_batch_rows", "memory", arguments=("max_running_requests",), words="dummy batch"),
    Field("decode_graphs", "graphs", arguments=_phase("decode"), words="decode graphs"),
    Field("prefill_graphs", "graphs", arguments=_phase("prefill", *_PIECEWISE), words="prefill graphs"),
    Field(
        *("attention_backend", "attention"),
        arguments=("attention_backend", "prefill_attention_backend", "decode_attention_backend"),
    ),
    Field("moe_runner_backend", "MoE", "auto"),
    Field("moe_a2a_backend", "MoE", "none"),
    Field("speculative_algorithm", "speculation"),
    Field(
        *("speculative", "speculation"),
        arguments=("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens"),
        words="steps/topk/tokens",
    ),
    Field("draft", "speculation", arguments=("speculative_draft_model_path",), words="draft's cache"),
    Field("tunes", "tuning", arguments=("disable_flashinfer_autotune",), words="tunes"),
    Field("fused_finalize", "tuning", False, words="fused finalize"),
    Field("autotune_extend", "tuning", False, words="tunes prefills"),
)
_OTHERS = {
    "model": "model json load language encoder enable_multimodal",
    "parallel": "disaggregation nnodes node attn_cp dcp dwdp moe_dp enable_dp",
    "memory": "max swa cpu_offload disable_radix enable_hierarchical hicache",
    "graphs": "disable_cuda_graph debug_cuda_graph enable_torch_compile",
    "attention": "mamba linear",
    "MoE": "moe deepep flashinfer_a2a enable_eplb enable_waterfill ep_num",
    "speculation": "speculative",
    "tuning": "flashinfer_autotune enable_deterministic rl_on fp4 fp8",
}
GROUPS = (*dict.fromkeys(field.group for field in FIELDS), "other")


def other_fields(server: Server, line: CommandLine) -> list[Field]:
    """Every other argument of this release that a rule looks at."""
    covered = {name for field in FIELDS for name in field.decided_by}
    idle = () if server.speculative else ("speculative",)
    others = [
        name
        for name in Asked.__dataclass_fields__
        if name not in covered and name in line.defaults and not name.startswith(idle)
    ]
    return [Field(name, _group(name), line.defaults[name]) for name in others]


def _group(name: str) -> str:
    """By the longest beginning of its name that a group lists."""
    begun = [
        (len(start), group)
        for group, starts in _OTHERS.items()
        for start in starts.split()
        if name.startswith(start)
    ]
    return max(begun, default=(0, "other"))[1]


def matters(field: Field, server: Server) -> bool:
    """Whether anything follows from it, for this server."""
    if field.name == "fused_finalize":
        return server.backend.calls in ("cutlass", "cutedsl")
    return field.name != "model_quantization" or server.model_quantization != server.quantization


class Told:
    """What one server says of its values and of the rules behind them."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._values, self._why = server.to_json(), server.why

    def value(self, field: Field) -> Any:
        """As the dry run's JSON says it; of another argument, what the last rule made of it."""
        name, server = field.name, self.server
        if name in self._values:
            return self._values[name]
        if name in server.reasons:
            return server.reasons[name][-1].value
        return getattr(server, name) if hasattr(server, name) else getattr(server.asked, name)

    def asked(self, field: Field) -> Any:
        """None where nobody asked; of several arguments, those that were given."""
        asked = self.server.asked
        given = {name: getattr(asked, name) for name in field.decided_by if is_set(asked, name)}
        if not given:
            return None
        return given[field.name] if list(given) == [field.name] else given

    def why(self, field: Field) -> str:
        """The rules on the branches that were taken."""
        draft = self.server.draft
        if field.name == "tunes":
            return self.server.tunes_because
        if field.name == "draft":
            return draft.tunes_because if draft else DEFAULT
        names = (field.name,) if field.name in self._why else field.decided_by
        found = {name: self._why[name] for name in names if name in self._why}
        if found:
            return "; ".join(dict.fromkeys(_phased(found)))
        return AS_SET if self.asked(field) is not None else DEFAULT

    def says(self, field: Field) -> tuple[Any, str]:
        """What must be the same for a release to do so too: of a draft not its key, which names releases."""
        value = self.value(field)
        return (value["tunes"] if field.name == "draft" and value else value), self.why(field)


def is_set(asked: Asked, name: str) -> bool:
    return name in Asked.__dataclass_fields__ and asked.is_set(name)


def _phased(found: Mapping[str, str]) -> Iterator[str]:
    """One phase's own backend is said to be that phase's."""
    for name, why in found.items():
        phase = name.partition("_attention_backend")[0]
        yield f"{phase}: {why}" if phase in ("prefill", "decode") and len(found) > 1 else why
