"""The one place that turns (tokens, runner) into global token counts and DP buffers.

Under DP attention every group of ranks holds its own requests, but MLP, experts and LM head work on the
rows of all of them: rows are gathered into one buffer before, and the own part is taken back after.
"""

from __future__ import annotations

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
    """What each attention-DP rank really brings to an eager forward, and how many rows its LM head wants."""

    tokens: Sequence[int]
    heads: Sequence[int]
    is_extend: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class DpTokens:
    """How many rows each attention-DP rank brings, and the buffers that follow. Counts are padded counts."""

    global_num_tokens_cpu: list[int] | None
    logprob_num_tokens_cpu: list[int] | None
    global_num_tokens: torch.Tensor | None
    buffer_len: int
    local_len: int
    padding: PaddingMode = PaddingMode.MAX_LEN
    kind: RunnerKind = "eager"

    def publish(self) -> None:
        """The forward that follows reads them by `dp_buffer_len`."""
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
    """Every runner's token counts. `tokens` are this rank's rows, `requests` its requests.

    Graph and draft runners bring the same rows everywhere; a frozen-KV draft brings `requests x topk`, and a
    draft extend asks the LM head for one row a request. An eager forward gives its `peers`' real counts.
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
    """The cheaper of the two; uneven prefills never pay for padding."""
    if len(counts) > 1 and (is_extend or 2 * sum(counts) < max(counts) * len(counts)):
        return PaddingMode.SUM_LEN
    return PaddingMode.MAX_LEN


def gather(x: torch.Tensor, comm: Communicator) -> torch.Tensor:
    """This rank's rows [rows, H] -> the rows of every DP rank; `x` itself where nothing is gathered."""
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
    """Partial sums [buffer, H] of every TP rank -> the finished rows of this rank."""
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
    """Rows of every DP rank one after the other: each writes its own into zeros, and all are summed."""
    out = x.new_zeros(sum(counts), *x.shape[1:])
    if comm.rank("attn_tp") == 0:
        out.narrow(0, sum(counts[: comm.rank("attn_dp")]), x.shape[0]).copy_(x)
    return comm.all_reduce(out, "tp")


def own_rows(x: torch.Tensor, counts: Sequence[int], rows: int, comm: Communicator) -> torch.Tensor:
    """This rank's rows out of everybody's: a copy, so that the large buffer can go."""
    local = x.new_empty(rows, *x.shape[1:])
    return local.copy_(x.narrow(0, sum(counts[: comm.rank("attn_dp")]), rows))


def pad_rows(x: torch.Tensor, rows: int, value: int = 0) -> torch.Tensor:
    if x.shape[0] == rows:
        return x
    padded = x.new_full((rows, *x.shape[1:]), value)
    padded[: x.shape[0]].copy_(x)
    return padded
