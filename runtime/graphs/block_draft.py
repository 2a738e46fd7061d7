"""Graphs of a draft of blocks: all tokens of a block at once, and the words that its target's head makes of
them where those are captured, too. srt/speculative/dflash_worker_v2.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch

from runtime.forward.batch import ForwardBatch, dummy_decode_batch
from runtime.forward.dp_attention import RunnerKind
from runtime.forward.kv_pool import KVPool
from runtime.graphs.base import CaptureSite, GraphRunner, Tensors
from runtime.graphs.places import NO_PLACES, Places, logits_of_draft
from runtime.models.block_words import BlockWords
from runtime.models.layer import StageState
from runtime.models.own_draft import OwnDraftModel
from runtime.server.channels import captured_messages


class BlockDraftGraphs(GraphRunner):
    """A block's tokens are `embedded` by the target's table before. Logits of its own no one asks for, and
    they have a place."""

    name = "draft"
    kind: ClassVar[RunnerKind] = "decode_graph"
    own_results = frozenset(("hidden",))

    def __init__(
        self,
        site: CaptureSite,
        draft: OwnDraftModel,
        kv: KVPool,
        sizes: Sequence[int],
        places: Places = NO_PLACES,
    ) -> None:
        self.draft, self.places, self.embedded = draft, places, places.embedded
        super().__init__(site, draft.decoder, kv, sizes, site.runtime.width)

    def make_outputs(self, largest: int) -> Tensors:
        self.words = self._make_words()
        if self.embedded is None:
            self.embedded = self._rows(largest)
        if self.places.logits is not None:
            rows, words, device = self.tokens(largest), self.decoder.model.vocab_size, self.site.torch_device
            self.logits = logits_of_draft(self.places, self.site.runtime.release, rows, words, device)
        return {} if self.keeps("hidden") else {"hidden": self._rows(largest)}

    def _rows(self, largest: int) -> torch.Tensor:
        shape = self.tokens(largest), self.decoder.model.hidden_size
        return torch.zeros(shape, dtype=self.decoder.build.dtype, device=self.site.torch_device)

    def _make_words(self) -> BlockWords | None:
        """As large as graphs may be, whatever is captured."""
        head, runtime = self.draft.words, self.site.runtime
        if head is None or head.stored is not None or self.width <= 1:
            return None
        by, ranks = runtime.release.captures_block_words, self.site.comm.size("tp")
        if by == "never" or (by == "of one rank" and ranks > 1):
            return None
        return BlockWords(head, self.site.comm, max(runtime.decode_graphs), self.width)

    def dummy_batch(self, size: int) -> ForwardBatch:
        return dummy_decode_batch(size, self.width, self.site.torch_device)

    def compute(self, batch: ForwardBatch) -> Tensors:
        assert self.embedded is not None
        normed, _ = self.draft.run_block(batch, self.kv, StageState(self.embedded[: batch.num_tokens]))
        if self.words is not None:
            self.words(normed)
        return {"hidden": normed}

    def messages(self, size: int) -> int:
        """Its embedding is made before."""
        site = self.site
        counted = captured_messages(
            self.decoder.model,
            site.parallel,
            site.runtime,
            rows=self.tokens(size),
            layers=len(self.decoder.layer_ids),
            is_prefill=False,
            has_head=False,
        )
        return max(0, counted - 1) + (0 if self.words is None else self.words.gathers)
