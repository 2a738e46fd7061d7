"""Graphs of a draft model: the steps that draft, and the pass that catches up after a verify."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from runtime.forward.batch import ForwardBatch, ForwardMode, LogitsMode, dummy_decode_batch
from runtime.forward.dp_attention import RunnerKind
from runtime.forward.kv_pool import KVPool
from runtime.forward.logits_processor import LogitsOutput
from runtime.forward.slots import PADDING_SLOT
from runtime.graphs.base import CaptureSite, GraphRunner, Tensors
from runtime.graphs.block_draft import BlockDraftGraphs
from runtime.graphs.places import NO_PLACES, Places, logits_of_draft
from runtime.graphs.prefill import PrefillGraphs
from runtime.models.decoder import Decoder
from runtime.models.draft import DraftModel, next_step
from runtime.models.own_draft import OwnDraftModel
from runtime.server.drafting_attention import catches_up_in_graphs
from runtime.server.speculative_config import SpeculativeConfig

AnyDraft = DraftModel | OwnDraftModel


class _DraftRunner(GraphRunner):
    """`hidden` is the target's for the rows of a replay, copied in before it: None where it gives none."""

    hidden: torch.Tensor | None

    def __init__(
        self,
        site: CaptureSite,
        draft: AnyDraft,
        kv: KVPool,
        sizes: Sequence[int],
        speculative: SpeculativeConfig,
        width: int,
        places: Places = NO_PLACES,
    ) -> None:
        self.draft, self.speculative, self.places = draft, speculative, places
        super().__init__(site, draft.decoder, kv, sizes, width)

    def make_outputs(self, largest: int) -> Tensors:
        self.hidden = _room(self.decoder, self.tokens(largest), self.hidden_width)
        return self.make_draft_outputs(largest)

    @property
    def hidden_width(self) -> int:
        return self.draft.given_width

    def given(self, batch: ForwardBatch) -> torch.Tensor | None:
        return None if self.hidden is None else self.hidden[: batch.num_tokens]

    @abstractmethod
    def make_draft_outputs(self, largest: int) -> Tensors:
        """Room for the results."""


class DraftGraphs(_DraftRunner):
    """All the steps of a draft. The first token is the catch-up's, so there is one step less.

    Each step writes its own slots, `slots[step]`; the request table already lists them.
    """

    name = "draft"
    kind: ClassVar[RunnerKind] = "draft"

    def dummy_batch(self, size: int) -> ForwardBatch:
        return dummy_decode_batch(self.tokens(size), 1, self.site.torch_device)

    def requests(self, size: int) -> int:
        """Every branch of a draft's tree is a request to attention."""
        return self.tokens(size)

    def size_of(self, batch: ForwardBatch) -> int:
        return batch.num_requests // self.width

    @property
    def hidden_width(self) -> int:
        return self.draft.recurrent_width

    @property
    def steps(self) -> int:
        return max(1, self.speculative.num_steps - 1)

    def make_draft_outputs(self, largest: int) -> Tensors:
        shape = (largest, self.steps, self.width)
        device = self.site.torch_device
        self.slots = torch.zeros(self.steps, self.tokens(largest), dtype=torch.int64, device=device)
        return {
            "tokens": torch.zeros(shape, dtype=torch.int64, device=device),
            "scores": torch.zeros(shape, dtype=torch.float32, device=device),
        }

    def compute(self, batch: ForwardBatch) -> Tensors:
        hidden, tokens = self.given(batch), batch.input_ids
        scores = torch.zeros(batch.num_tokens // self.width, self.width, device=self.site.torch_device)
        drafted = []
        for step in range(self.steps):
            slots = self.slots[step, : batch.num_tokens]
            out = self.draft(next_step(batch, tokens, step, slots), self.kv, hidden)
            tokens, scores, parents = best_branches(out, scores, self.width)
            hidden = None if out.hidden_states is None else out.hidden_states[parents]
            drafted.append((tokens.view(-1, self.width), scores))
        return {
            "tokens": torch.stack([tokens for tokens, _ in drafted], dim=1),
            "scores": torch.stack([scores for _, scores in drafted], dim=1),
        }

    def _own_rows(self, batch: ForwardBatch) -> int:
        return self.size_of(batch)


class FrozenKVDraftGraphs(DraftGraphs):
    """A draft that reads the target's keys and values and writes none."""

    name = "frozen_kv_mtp"
    kind = "frozen_kv_mtp"

    def _fill(self, batch: ForwardBatch, size: int) -> ForwardBatch:
        nowhere = torch.full_like(batch.out_cache_loc, PADDING_SLOT)
        return super()._fill(replace(batch, out_cache_loc=nowhere), size)


class DraftExtendGraphs(_DraftRunner):
    """Catch up with the tokens that a verify accepted; of each request, the head sees the last."""

    name = "draft_extend"
    kind: ClassVar[RunnerKind] = "draft_extend"
    own_results = frozenset(("hidden",))

    def dummy_batch(self, size: int) -> ForwardBatch:
        batch = dummy_decode_batch(size, self.width, self.site.torch_device)
        return replace(batch, mode=ForwardMode.DRAFT_EXTEND, logits_mode=LogitsMode.LAST)

    def make_draft_outputs(self, largest: int) -> Tensors:
        width = 0 if self.keeps("hidden") else self.draft.recurrent_width
        outputs = {
            "logits": self._room_for_logits(largest),
            "hidden": _room(self.decoder, self.tokens(largest), width),
        }
        return _there(outputs)

    def _room_for_logits(self, largest: int) -> torch.Tensor:
        """Once of every row, though the head sees the last."""
        release, words = self.site.runtime.release, self.decoder.model.logits_size
        is_last = release.keeps_last_caught_up or self.speculative.without_overlap
        rows = largest if is_last or self.places.logits is None else self.tokens(largest)
        return logits_of_draft(self.places, release, rows, words, self.site.torch_device)

    def compute(self, batch: ForwardBatch) -> Tensors:
        out = self.draft(batch, self.kv, self.given(batch))
        hidden = out.hidden_states
        if hidden is not None and self._keeps_last:
            hidden = hidden[self.width - 1 :: self.width].clone()
        return _there({"logits": out.next_token_logits, "hidden": hidden})

    @property
    def _keeps_last(self) -> bool:
        """Of each request one row: srt/layers/logits_processor.py."""
        is_usual = self.site.runtime.release.keeps_last_caught_up or self.speculative.without_overlap
        return self.keeps("hidden") and is_usual


class MultiLayerDraftExtendGraphs(DraftExtendGraphs):
    """The same for one of several draft layers: its rows are gathered as a decode's are."""

    name = "multi_layer_draft_extend"
    kind = "multi_layer_draft_extend"


class DraftPrefillGraphs(PrefillGraphs):
    """Of a draft's own prefills, whose rows come with what the target made of them."""

    name = "draft_prefill"

    def __init__(self, site: CaptureSite, draft: OwnDraftModel, kv: KVPool, sizes: Sequence[int]) -> None:
        self.draft = draft
        super().__init__(site, draft.decoder, kv, sizes)

    def make_last_outputs(self, rows: int) -> Tensors:
        self.hidden = _room(self.decoder, rows, self.draft.given_width)
        before = _room(self.decoder, rows, self.draft.recurrent_width if self._norms else 0)
        return _there({**super().make_last_outputs(rows), "before": before})

    @property
    def _norms(self) -> bool:
        """What its layers make: else the head reads what the next step is given."""
        return self.decoder.norm is not None

    def compute(self, batch: ForwardBatch) -> Tensors:
        hidden = None if self.hidden is None else self.hidden[: batch.num_tokens]
        normed, before = self.draft.run_layers(batch, self.kv, hidden)
        return {
            "hidden": normed,
            **({"before": before} if self.draft.recurrent_width and self._norms else {}),
        }

    def finish(self, results: Tensors, batch: ForwardBatch) -> LogitsOutput:
        normed = results["hidden"]
        return self.draft.answer((normed, results.get("before", normed)), batch)


def _room(decoder: Decoder, rows: int, width: int) -> torch.Tensor | None:
    build = decoder.build
    return torch.zeros(rows, width, dtype=build.dtype, device=build.device) if width else None


def _there(tensors: Mapping[str, torch.Tensor | None]) -> Tensors:
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


@dataclass(frozen=True, slots=True)
class DraftRunners:
    """`steps` is None where one step is drafted: the catch-up alone does that."""

    steps: DraftGraphs | BlockDraftGraphs | None
    extends: tuple[DraftExtendGraphs, ...]
    prefills: DraftPrefillGraphs | None = None

    def capture(self) -> None:
        for runner in (self.prefills, self.steps, *self.extends):
            if runner is not None:
                runner.capture()


def make_draft_runners(
    site: CaptureSite,
    drafts: Sequence[AnyDraft],
    kvs: Sequence[KVPool],
    sizes: Sequence[int],
    prefills: Sequence[int] = (),
    places: Places = NO_PLACES,
) -> DraftRunners:
    speculative = site.runtime.speculative
    assert speculative is not None
    width, topk = speculative.num_draft_tokens, speculative.eagle_topk
    if speculative.algorithm == "FROZEN_KV_MTP":
        frozen = FrozenKVDraftGraphs(site, drafts[0], kvs[0], sizes, speculative, topk)
        return DraftRunners(frozen, ())
    if speculative.multi_layer:
        each = tuple(
            MultiLayerDraftExtendGraphs(site, draft, kv, sizes, speculative, width)
            for draft, kv in zip(drafts, kvs, strict=True)
        )
        return DraftRunners(None, each)
    draft, kv, steps, prefilled = drafts[0], kvs[0], None, None
    if isinstance(draft, OwnDraftModel) and draft.own.drafts_block:
        return DraftRunners(BlockDraftGraphs(site, draft, kv, sizes, places), ())
    latent = draft.decoder.model.mla is not None
    if not catches_up_in_graphs(speculative, site.runtime.release, latent):
        extends: tuple[DraftExtendGraphs, ...] = ()
    else:
        rows = speculative.num_steps + 1 if site.runtime.release.catches_up_by_steps else width
        extends = (DraftExtendGraphs(site, draft, kv, sizes, speculative, rows, places),)
    if prefills and isinstance(draft, OwnDraftModel):
        prefilled = DraftPrefillGraphs(site, draft, kv, prefills)
    if speculative.num_steps > 1:
        steps = DraftGraphs(site, draft, kv, sizes, speculative, topk)
    return DraftRunners(steps, extends, prefilled)


def best_branches(
    out: LogitsOutput, scores: torch.Tensor, width: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Each request's `width` likeliest continuations: tokens, log-probabilities, the rows continued."""
    assert out.next_token_logits is not None
    best = out.next_token_logits.log_softmax(dim=-1).topk(width, dim=-1)
    requests = scores.shape[0]
    totals = (best.values.view(requests, width, width) + scores.unsqueeze(-1)).flatten(1)
    chosen = totals.topk(width, dim=-1)
    tokens = best.indices.view(requests, width * width).gather(1, chosen.indices)
    first_row = torch.arange(requests, device=scores.device).unsqueeze(1) * width
    return tokens.flatten(), chosen.values, (first_row + chosen.indices // width).flatten()
