"""What every attention-DP rank brings to a step, told to all: they run the same kernels, or wait forever."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import torch

from runtime.forward.batch import ForwardBatch, ForwardMode, LogitsMode
from runtime.forward.comm import Communicator
from runtime.forward.dp_attention import PeerRows


class GraphKind(IntEnum):
    NONE = 0
    DECODE = 1
    PREFILL = 2
    ANY = 3  # of a rank without requests


@dataclass(frozen=True, slots=True)
class Brings:
    tokens: int
    heads: int
    is_extend: bool
    graph: GraphKind


def brings(batch: ForwardBatch, graph: GraphKind) -> Brings:
    """`graph` is what this rank could replay by itself."""
    is_extend = batch.mode is ForwardMode.EXTEND
    heads = batch.num_requests if is_extend and batch.logits_mode is LogitsMode.LAST else batch.num_tokens
    return Brings(batch.num_tokens, heads, is_extend, graph)


def meet(own: Brings, comm: Communicator) -> tuple[PeerRows, GraphKind]:
    """Everybody's rows, and the graphs that all of them replay."""
    told = torch.tensor([[own.tokens, own.heads, own.is_extend, own.graph]], device="cpu")
    of_all = told.new_empty(comm.size("tp"), told.shape[1])
    comm.all_gather_into(of_all, told, "tp")
    ranks = of_all[:: comm.size("attn_tp")].tolist()
    tokens, heads, extends, graphs = ([row[i] for row in ranks] for i in range(4))
    return PeerRows(tokens, heads, any(extends)), agreed(graphs)


def agreed(proposed: Sequence[int]) -> GraphKind:
    wanted = {GraphKind(one) for one in proposed} - {GraphKind.ANY}
    return wanted.pop() if len(wanted) == 1 else GraphKind.NONE
