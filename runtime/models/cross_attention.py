"""Attention to what a tower made of images, as it runs where no request has one."""

from __future__ import annotations

import torch

from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool
from runtime.models.gqa import GroupedQueryAttention
from runtime.models.query_key_norm import HeadNorms


class CrossAttention(GroupedQueryAttention):
    """Queries are made, and find nothing. Keys and values have places all the same, as SGLang keeps them."""

    def forward(
        self, x: torch.Tensor, batch: ForwardBatch, pool: KVPool, table: torch.Tensor | None
    ) -> torch.Tensor:
        assert isinstance(self.norms, HeadNorms)
        q = self.qkv(x).split(self.sizes, -1)[0].reshape(-1, self.widths[0])
        q = self.norms.q_norm(q)
        return self.out(torch.zeros_like(q).view(x.shape[0], -1))
