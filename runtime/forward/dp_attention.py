"""The only place that computes the token counts of all DP ranks and the sizes of their buffers.

Under DP attention every group of ranks holds its own requests, but MLP, experts and LM head work on the rows
of all groups: rows are gathered into one buffer before, and each rank takes its own rows back after.
"""

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from typing import Literal, get_args

import torch

from runtime.forward.comm import Communicator
from runtime.server.errors import ConfigError
from runtime.server.parallel import ParallelConfig


class PaddingMode(Enum):
    MAX_LEN = "max_len"  # every rank padded to the longest: all-gather, then reduce-scatter
    SUM_LEN = "sum_len"  # ranks one after the other: all-reduce of a zero-filled buffer, then a slice


RunnerKind = Literal[
    "eager",
    "decode_graph",
    "prefill_graph",
    "draft",
    "draft_extend",
    "multi_layer_draft_extend",
    "frozen_kv_mtp",
]
RUNNER_KINDS: tuple[str, ...] = get_args(RunnerKind)


@dataclass(frozen=True, slots=True)
class PeerRows:
    """The real row counts of each attention-DP rank in an eager forward, and the rows for its LM head."""

    tokens: Sequence[int]
    heads: Sequence[int]
    is_extend: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class DpTokens:
    """The padded row counts of all attention-DP ranks, and the buffer sizes that follow from them."""

    global_num_tokens_cpu: list[int] | None
    logprob_num_tokens_cpu: list[int] | None
    global_num_tokens: torch.Tensor | None
    buffer_len: int
    local_len: int
    padding: PaddingMode = PaddingMode.MAX_LEN
    kind: RunnerKind = "eager"

    def publish(self) -> None:
        """Make these counts the ones that `dp_buffer_len` returns in the forward that follows."""
        _published.set(self)


_NOTHING = DpTokens(None, None, None, 0, 0)
_published: ContextVar[DpTokens] = ContextVar("dp_buffer_len", default=_NOTHING)


def dp_buffer_len() -> DpTokens:
    return _published.get()


def plan_dp_tokens(
    tokens: int,
    kind: RunnerKind,
    parallel: ParallelConfig,
    *,
    moe_a2a_backend: str = "none",
    requests: int | None = None,
    topk: int = 1,
    peers: PeerRows | None = None,
    dp_rank: int = 0,
    device: torch.device | None = None,
) -> DpTokens:
    """Return the token counts of one forward, from this rank's `tokens` rows and its `requests`.

    In graph and draft runners all ranks have equal counts. A frozen-KV draft has `requests x topk` rows. A
    draft extend needs the LM head for one row per request. An eager forward passes its `peers`' counts.
    """
    if kind not in RUNNER_KINDS:
        raise ConfigError(f"unknown runner {kind!r}: one of {', '.join(RUNNER_KINDS)}")
    rows = _require_requests(kind, requests) * topk if kind == "frozen_kv_mtp" else tokens
    heads = _require_requests(kind, requests) if kind == "draft_extend" else rows
    if not parallel.gathers_rows(moe_a2a_backend):
        return DpTokens(None, None, None, rows, rows, kind=kind)
    width = parallel.attn_dp if parallel.gathers_mlp else 1
    peers = peers or PeerRows([rows] * width, [heads] * width)
    if len(peers.tokens) != width or len(peers.heads) != width:
        raise ConfigError(f"{peers} does not name the rows of {width} attention-DP ranks")
    counts = [-(-count // parallel.attn_tp) * parallel.attn_tp for count in peers.tokens]
    padding = _padding(counts, peers.is_extend)
    if padding is PaddingMode.MAX_LEN:
        counts = [max(counts)] * width
    on_device = torch.tensor(counts, dtype=torch.int32, device=device)
    local_len = counts[dp_rank % width]
    return DpTokens(counts, list(peers.heads), on_device, sum(counts), local_len, padding, kind)


def _require_requests(kind: str, requests: int | None) -> int:
    if requests is None:
        raise ConfigError(f"the counts of a {kind} runner follow its requests: pass requests=")
    return requests


def _padding(counts: Sequence[int], is_extend: bool) -> PaddingMode:
    """Return the cheaper padding mode. Prefills of several ranks are never padded."""
    if len(counts) > 1 and (is_extend or 2 * sum(counts) < max(counts) * len(counts)):
        return PaddingMode.SUM_LEN
    return PaddingMode.MAX_LEN


def gather(x: torch.Tensor, comm: Communicator) -> torch.Tensor:
    """Return the rows of every DP rank for this rank's [rows, H]; `x` itself if nothing is gathered."""
    sizes = dp_buffer_len()
    counts = sizes.global_num_tokens_cpu
    if counts is None or len(counts) == 1:
        return x
    if sizes.padding is PaddingMode.SUM_LEN:
        return gather_rows(x, counts, comm)
    out = x.new_empty(sizes.buffer_len, *x.shape[1:])
    # Attention-TP ranks hold the same rows, so each brings its own part of them.
    part = pad_rows(x, sizes.local_len).tensor_split(comm.size("attn_tp"))[comm.rank("attn_tp")]
    comm.all_gather_into(out, part, "tp")
    return out


def scatter(x: torch.Tensor, rows: int, comm: Communicator) -> torch.Tensor:
    """Sum the TP ranks' partial sums [buffer, H], and return this rank's rows."""
    sizes = dp_buffer_len()
    counts = sizes.global_num_tokens_cpu
    if counts is None or len(counts) == 1:
        return comm.all_reduce(x, "tp")
    if sizes.padding is PaddingMode.SUM_LEN:
        return own_rows(comm.all_reduce(x, "tp"), counts, rows, comm)
    part = x.new_empty(x.shape[0] // comm.size("tp"), *x.shape[1:])
    comm.reduce_scatter_into(part, x, "tp")
    if comm.size("attn_tp") == 1:
        return part[:rows]
    local = x.new_empty(sizes.local_len, *x.shape[1:])
    comm.all_gather_into(local, part, "attn_tp")
    return local[:rows]


def gather_rows(x: torch.Tensor, counts: Sequence[int], comm: Communicator) -> torch.Tensor:
    """Return every DP rank's rows, in rank order: each writes its own into zeros, and all are summed."""
    out = x.new_zeros(sum(counts), *x.shape[1:])
    if comm.rank("attn_tp") == 0:
        out.narrow(0, sum(counts[: comm.rank("attn_dp")]), x.shape[0]).copy_(x)
    return comm.all_reduce(out, "tp")


def own_rows(x: torch.Tensor, counts: Sequence[int], rows: int, comm: Communicator) -> torch.Tensor:
    """Return a copy of this rank's rows of `x`, so that the large buffer can be freed."""
    local = x.new_empty(rows, *x.shape[1:])
    return local.copy_(x.narrow(0, sum(counts[: comm.rank("attn_dp")]), rows))


def pad_rows(x: torch.Tensor, rows: int) -> torch.Tensor:
    if x.shape[0] == rows:
        return x
    padded = x.new_full((rows, *x.shape[1:]), 0)
    padded[: x.shape[0]].copy_(x)
    return padded
