"""What a start does for its drafts: a layer more of the model, or a model of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from runtime.forward.kv_pool import KVPool
from runtime.graphs.base import CaptureSite
from runtime.graphs.decode import DecodeGraphs
from runtime.graphs.draft import AnyDraft, DraftRunners, make_draft_runners
from runtime.graphs.places import NO_PLACES, Places
from runtime.graphs.prefill import PrefillGraphs
from runtime.models.draft import load_drafts
from runtime.models.own_draft import OwnDraftModel
from runtime.server.drafting_attention import knows_buffers
from runtime.server.start_sizes import captured_sizes
from runtime.server.units import GIB
from runtime.start.pooling import Pooling
from runtime.start.sglang_buffers import DraftAttention, SglangBuffers


class Drafting(Pooling):
    """The part of a model runner that loads drafts, gives them their pools, and captures them."""

    sglang: SglangBuffers | None
    prefill_graphs: PrefillGraphs | None
    decode_graphs: DecodeGraphs | None
    drafts: Sequence[AnyDraft]
    draft_kvs: list[KVPool]

    def load_draft_weights(self) -> None:
        """With tables of its own, as a checkpoint has them."""
        if not self._num_drafts:
            return
        with self.recorder.phase("draft weights"):
            own, device, seed = self.own_draft, self.device.torch_device, self.options.seed
            if own is not None:
                self.drafts = (OwnDraftModel(own, self.comm, device, seed, self.decoder.ropes),)
            else:
                self.drafts = load_drafts(self.decoder, self.model, self.runtime, seed)

    def init_draft_kv_pool(self) -> None:
        """From now on a draft looks into the target's tables."""
        if not self.drafts:
            return
        with self.recorder.phase("draft kv pool"):
            self.draft_kvs = [self._draft_kv(draft) for draft in self.drafts]
            for draft in self.drafts:
                draft.share_tables(self.decoder)

    def capture_drafts(self, site: CaptureSite) -> None:
        self.draft_runners: DraftRunners | None = None
        drafts_block = self.own_draft is not None and self.own_draft.drafts_block
        asked = self.max_running_requests, self.parallel, self.runtime
        sizes = captured_sizes(*asked, drafts=not drafts_block)
        if not self.drafts or not sizes or self.options.sample_layers:
            return
        self.device.empty_cache()
        if drafts_block and not self._has_room_for_blocks():
            return
        with self.recorder.phase("draft graphs"):
            attention = self._draft_attention()
            if self.sglang and attention is not None:
                self.sglang.init_draft_graphs(attention, sizes)
            site, prefills = self._of_drafts(site), self._draft_prefills()
            made = site, self.drafts, self.draft_kvs, sizes, prefills, self._places()
            self.draft_runners = make_draft_runners(*made)
            self.draft_runners.capture()

    def _places(self) -> Places:
        """Of the target's graphs, which SGLang's have in common with those of its draft."""
        if self.sglang is None or self.decode_graphs is None:
            return NO_PLACES
        shares = self.runtime.release.shares_logits != "of more"
        embedded = self.sglang.held.get("decode input_embeds") if shares else None
        return Places(embedded, self.decode_graphs.outputs.get("logits"))

    def _has_room_for_blocks(self) -> bool:
        memory, needed = self.device.memory(), int(self.runtime.release.block_graphs_need * GIB)
        return not (self.sglang and memory.total) or memory.free >= needed

    def _draft_attention(self) -> DraftAttention | None:
        """Where it is known what that holds."""
        own, speculative = self.own_draft, self.runtime.speculative
        if own is not None:
            if own.model.is_mla and not knows_buffers((own.attention_backend,) * 2, own.model):
                return None
            return DraftAttention(own.attention_backend, own.model, own.parallel.attn_tp, own.kv_dtype)
        if not self.drafts or speculative is None or not self._draft_layers:
            return None
        model, backends = self.drafts[0].decoder.model, (speculative.steps_by, speculative.catches_up_by)
        if not knows_buffers(backends, model):
            return None
        return DraftAttention(speculative.steps_by, model, self.parallel.attn_tp, self._draft_dtype)

    def _draft_prefills(self) -> tuple[int, ...]:
        """Of a model of its own, where its target's were not given up."""
        return self.own_draft.runtime.prefill_graphs if self.own_draft and self.prefill_graphs else ()

    def _of_drafts(self, site: CaptureSite) -> CaptureSite:
        own = self.own_draft
        if own is None:
            return site
        return replace(site, parallel=own.parallel, runtime=own.runtime, comm=self.drafts[0].decoder.comm)
