"""Which groups of a request's tokens each token sees, by the mean of their keys: chosen on a CPU."""

from __future__ import annotations

import torch

from runtime.layers.attention.reference import Paging, mean_scores
from runtime.layers.norm import rms_norm
from runtime.layers.opaque import opaque_op
from runtime.layers.rope import rope_
from runtime.server.errors import Unsupported


@opaque_op("sgl_tune::chosen_means", mutates_args=())
def chosen_means(
    q: torch.Tensor,
    keys: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    rope: torch.Tensor,
    interleaved: bool,
    table: torch.Tensor,
    requests: torch.Tensor,
    seq_lens: torch.Tensor,
    query_starts: torch.Tensor,
    max_query_len: int,
    count: int,
    size: int,
) -> torch.Tensor:
    """`count` tokens in groups of `size`, and those that no group has yet. A mean is normed, and turned as
    the first token of its group is."""
    if q.is_cuda:
        raise Unsupported(
            f"this runtime has no kernels that choose groups of tokens: of {count + size - 1} at most"
        )

    def made(means: torch.Tensor) -> torch.Tensor:
        normed = rms_norm(means, weight, eps)[:, None]
        rope_(normed, normed[:, :0], rope, torch.arange(len(means)) * size, interleaved)
        return normed[:, 0]

    paging = Paging(table, requests, seq_lens, query_starts, max_query_len)
    chosen = torch.full((q.shape[0], count + size - 1), -1, dtype=torch.int32)
    inside = torch.arange(size, dtype=torch.int32)
    for row, position, scores in mean_scores(q, keys, made, size, paging):
        best = scores.topk(min(count // size, len(scores)), dim=0).indices.int()
        chosen[row, : len(best) * size] = (best[:, None] * size + inside).flatten()
        last = torch.arange(len(scores) * size, position + 1, dtype=torch.int32)
        chosen[row, count : count + len(last)] = last
    return chosen


@chosen_means.register_fake
def _(q: torch.Tensor, *rest: object) -> torch.Tensor:
    count, size = rest[-2:]
    assert isinstance(count, int) and isinstance(size, int)
    return torch.empty(q.shape[0], count + size - 1, dtype=torch.int32, device=q.device)
