"""A decoder made from a config: the layers of one pipeline stage, in the part that one rank holds."""

from collections.abc import Sequence

import torch
from torch import nn

from runtime.decoder.build import make_build
from runtime.decoder.layer import DecoderLayer, StageState
from runtime.decoder.mla import LatentAttention
from runtime.decoder.mlp import MoELayer
from runtime.devices.layer_loop import each_layer
from runtime.forward.batch import ForwardBatch
from runtime.forward.comm import Communicator
from runtime.forward.dp_attention import DpTokens
from runtime.forward.kv_pool import KVPool
from runtime.forward.logits_processor import LogitsOutput, LogitsProcessor
from runtime.layers.embedding import TokenEmbedding, VocabTable
from runtime.layers.linear import Linear
from runtime.layers.loading import fill_dummy
from runtime.layers.rope import RopeTables
from runtime.moe.backends import MoEBackend, make_backend
from runtime.moe.dispatcher import Dispatcher, make_dispatcher
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.errors import Unsupported


class Decoder(nn.Module):
    """Layers of one rank. `layers` are their numbers: all of a stage, or one per kind (`sample_layers`)."""

    def __init__(
        self,
        model: ModelConfig,
        runtime: RuntimeConfig,
        comm: Communicator,
        device: torch.device,
        layers: Sequence[int],
        dispatcher: Dispatcher | None = None,
        ropes: RopeTables | None = None,
    ) -> None:
        super().__init__()
        gaps = model.gaps
        obstacles = gaps.obstacles if device.type == "meta" else (*gaps.obstacles, *gaps.uncomputed)
        if obstacles:
            raise Unsupported(obstacles[0])
        self.model, self.comm, self.layer_ids = model, comm, tuple(layers)
        self.build = build = make_build(model, runtime, comm, device)
        self.is_first = comm.layout.pp_rank == 0
        self.is_last = comm.layout.pp_rank == comm.size("pp") - 1
        self.embedding = self._make_embedding() if self.is_first else None
        dispatcher = dispatcher or make_dispatcher(model, runtime, comm, build.dtype, device)
        self.backend: MoEBackend | None = None
        if any(model.layer_kinds[layer] == "moe" for layer in layers):
            self.backend = make_backend(model, runtime, comm.layout)
        self.ropes = ropes or RopeTables(device)
        self._stack = [DecoderLayer(build, one, dispatcher, self.backend, self.ropes) for one in layers]
        self.layers = nn.ModuleList(self._stack)
        self.norm = build.norm_of_rows(model.names.norm) if self.is_last else None
        self.head = self._make_head() if self.is_last else None
        self.logits = (
            None if self.head is None else self.logits_of(self.head, runtime.speculative is not None)
        )

    def logits_of(self, head: VocabTable, keep_hidden: bool) -> LogitsProcessor:
        return LogitsProcessor(
            self.model.vocabulary, self.comm, head, keep_hidden, over=self.build.runtime.head_over
        )

    def _make_embedding(self) -> TokenEmbedding:
        """Each attention-TP group embeds its own tokens. Some models have the whole table on every rank."""
        group, build = "" if self.model.vocabulary.whole else "attn_tp", self.build
        return TokenEmbedding(
            self.model.names.embedding, self.model, self.comm, group, build.dtype, build.device
        )

    def _make_head(self) -> VocabTable:
        """Return the head. SGLang does not tie it to an embedding that is whole, on a later stage."""
        model, build = self.model, self.build
        is_tied = model.vocabulary.is_tied
        if is_tied and not (model.vocabulary.whole and self.comm.size("pp") > 1):
            return self._make_embedding() if self.embedding is None else self.embedding
        name = model.names.embedding if is_tied else model.names.head
        group = "attn_tp" if build.runtime.head_over == "a group" else "tp"
        return VocabTable(name, model, self.comm, group, build.dtype, build.device)

    def run_stage(self, batch: ForwardBatch, pool: KVPool) -> LogitsOutput | StageState:
        """Receive the previous stage's state, run this stage, and send the state to the next stage."""
        state = None if self.is_first else self.empty_state(batch.num_tokens)
        for rows in state.parts.values() if state else ():
            self.comm.receive_previous(rows)
        result = self(batch, pool, state)
        for rows in result.parts.values() if isinstance(result, StageState) else ():
            self.comm.send_next(rows)
        return result

    @torch.no_grad()
    def forward(
        self, batch: ForwardBatch, pool: KVPool, state: StageState | None = None
    ) -> LogitsOutput | StageState:
        """Return logits on the last stage, else the next stage's state. `state` is the previous stage's."""
        state = self.run_layers(batch, pool, state)
        return self.run_head(state, batch) if self.is_last else state

    def run_layers(self, batch: ForwardBatch, pool: KVPool, state: StageState | None = None) -> StageState:
        """Run everything before the final norm, which is what a prefill graph captures."""
        self._publish_token_counts(batch)
        if self.embedding is not None:
            state = StageState(self.embedding(batch.input_ids, self.comm))
        assert state is not None, "a later pipeline stage needs the state of the one before"
        for layer in each_layer(self._stack, kind=lambda layer: layer.kind):
            state = layer(state, batch, pool, self.ropes.table(layer.table_name))
        return state

    def run_head(self, state: StageState, batch: ForwardBatch) -> LogitsOutput:
        assert self.logits is not None
        return self.logits.forward(self.last_norm(state), batch)

    def last_norm(self, state: StageState) -> torch.Tensor:
        assert self.norm is not None
        if state.residual is None:
            return self.norm(state.hidden)
        return self.norm.add(state.hidden, state.residual)

    def _publish_token_counts(self, batch: ForwardBatch) -> None:
        if batch.dp is not None:
            batch.dp.publish()
        elif self.comm.size("attn_dp") == 1:
            DpTokens(None, None, None, batch.num_tokens, batch.num_tokens).publish()
        else:
            raise ValueError("a batch under DP attention needs its token counts: see plan_dp_tokens")

    def empty_state(self, tokens: int) -> StageState:
        """Return buffers for the state of a stage."""
        hidden = torch.empty(tokens, self.model.hidden_size, dtype=self.build.dtype, device=self.build.device)
        return StageState(hidden, torch.empty_like(hidden))

    def load_dummy(self) -> None:
        """Fill all weights with random values of the exact sizes."""
        for name, parameter in self.named_parameters():
            fill_dummy(name, parameter.data)
        self.finalize()

    def finalize(self) -> None:
        """Finish attention first: placed among the experts' temporaries, its results would keep segments."""
        modules = list(self.modules())
        for module in modules:
            if isinstance(module, Linear):
                module.finish()
        for module in modules:
            if isinstance(module, LatentAttention):
                module.finalize()
        for module in modules:
            if isinstance(module, MoELayer):
                module.finalize()


def sample_layers(model: ModelConfig) -> tuple[int, ...]:
    """Return one layer of each kind, which is all that tuning needs of a model."""
    kinds = {model.kind_of(layer): layer for layer in reversed(range(model.num_layers))}
    return tuple(sorted(kinds.values()))
