"""Graphs of a draft model: its drafting steps, and the catch-up pass after a verify."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from runtime.decoder.draft import DraftModel, next_step
from runtime.forward.batch import ForwardBatch, ForwardMode, LogitsMode, dummy_decode_batch
from runtime.forward.dp_attention import RunnerKind
from runtime.forward.kv_pool import KVPool
from runtime.forward.logits_processor import LogitsOutput
from runtime.graphs.base import CaptureSite, GraphRunner, Tensors


class _DraftRunner(GraphRunner):
    """Base of the draft's runners. `hidden` holds the target's hidden states, copied in before a replay."""

    def __init__(
        self, site: CaptureSite, draft: DraftModel, kv: KVPool, sizes: Sequence[int], width: int
    ) -> None:
        self.draft = draft
        super().__init__(site, draft.decoder, kv, sizes, width)

    def make_outputs(self, largest: int) -> Tensors:
        self.hidden = self.room(self.tokens(largest), self.decoder.model.hidden_size)
        return {}


class DraftGraphs(_DraftRunner):
    """All drafting steps in one graph. The catch-up pass drafts the first token, so there is one step less.

    Each step writes its own slots, `slots[step]`; the request table lists these slots already.
    """

    name = "draft"
    kind: ClassVar[RunnerKind] = "draft"

    def dummy_batch(self, size: int) -> ForwardBatch:
        return dummy_decode_batch(self.tokens(size), 1, self.site.torch_device)

    def requests(self, size: int) -> int:
        """Return one request per token: attention sees each branch of the draft's tree as a request."""
        return self.tokens(size)

    def size_of(self, batch: ForwardBatch) -> int:
        return batch.num_requests // self.width

    @property
    def steps(self) -> int:
        assert self.site.runtime.speculative is not None
        return max(1, self.site.runtime.speculative.num_steps - 1)

    def make_outputs(self, largest: int) -> Tensors:
        super().make_outputs(largest)
        self.slots = self.room(self.steps, self.tokens(largest), dtype=torch.int64)
        shape = (largest, self.steps, self.width)
        return {
            "tokens": self.room(*shape, dtype=torch.int64),
            "scores": self.room(*shape, dtype=torch.float32),
        }

    def compute(self, batch: ForwardBatch) -> Tensors:
        hidden, tokens = self.hidden[: batch.num_tokens], batch.input_ids
        scores = torch.zeros(batch.num_tokens // self.width, self.width, device=self.site.torch_device)
        drafted = []
        for step in range(self.steps):
            slots = self.slots[step, : batch.num_tokens]
            out = self.draft(next_step(batch, tokens, step, slots), self.kv, hidden)
            tokens, scores, parents = best_branches(out, scores, self.width)
            assert out.hidden_states is not None
            hidden = out.hidden_states[parents]
            drafted.append((tokens.view(-1, self.width), scores))
        return {
            "tokens": torch.stack([tokens for tokens, _ in drafted], dim=1),
            "scores": torch.stack([scores for _, scores in drafted], dim=1),
        }


class DraftExtendGraphs(_DraftRunner):
    """Run the tokens that a verify accepted through the draft; the head sees the last row of each request."""

    name = "draft_extend"
    kind: ClassVar[RunnerKind] = "draft_extend"

    def dummy_batch(self, size: int) -> ForwardBatch:
        batch = dummy_decode_batch(size, self.width, self.site.torch_device)
        return replace(batch, mode=ForwardMode.DRAFT_EXTEND, logits_mode=LogitsMode.LAST)

    def make_outputs(self, largest: int) -> Tensors:
        super().make_outputs(largest)
        model = self.decoder.model
        return {
            "logits": self.room(largest, model.vocabulary.size, dtype=torch.float32),
            "hidden": self.room(self.tokens(largest), model.hidden_size),
        }

    def compute(self, batch: ForwardBatch) -> Tensors:
        out = self.draft(batch, self.kv, self.hidden[: batch.num_tokens])
        assert out.next_token_logits is not None and out.hidden_states is not None
        return {"logits": out.next_token_logits, "hidden": out.hidden_states}


@dataclass(frozen=True, slots=True)
class DraftRunners:
    """The draft's two runners. `steps` is None if only one step is drafted, which the catch-up does."""

    steps: DraftGraphs | None
    extend: DraftExtendGraphs

    def capture(self) -> None:
        if self.steps is not None:
            self.steps.capture()
        self.extend.capture()


def make_draft_runners(
    site: CaptureSite, draft: DraftModel, kv: KVPool, sizes: Sequence[int]
) -> DraftRunners:
    told = site.runtime.speculative
    assert told is not None
    extend = DraftExtendGraphs(site, draft, kv, sizes, told.num_draft_tokens)
    steps = DraftGraphs(site, draft, kv, sizes, told.eagle_topk) if told.num_steps > 1 else None
    return DraftRunners(steps, extend)


def best_branches(out: LogitsOutput, scores: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return each request's `width` likeliest continuations: tokens, log-probabilities, rows continued."""
    assert out.next_token_logits is not None
    best = out.next_token_logits.log_softmax(dim=-1).topk(width, dim=-1)
    requests = scores.shape[0]
    totals = (best.values.view(requests, width, width) + scores.unsqueeze(-1)).flatten(1)
    chosen = totals.topk(width, dim=-1)
    tokens = best.indices.view(requests, width * width).gather(1, chosen.indices)
    first_row = torch.arange(requests, device=scores.device).unsqueeze(1) * width
    return tokens.flatten(), chosen.values, (first_row + chosen.indices // width).flatten()
