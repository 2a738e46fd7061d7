"""What graphs of a whole stage share: the state that comes from the stage before, and goes to the next."""

from __future__ import annotations

from abc import abstractmethod

import torch

from runtime.decoder.decoder import StageState
from runtime.forward.batch import ForwardBatch
from runtime.forward.logits_processor import LogitsOutput
from runtime.graphs.base import GraphRunner, Tensors


class StageGraphs(GraphRunner):
    """`state` is None on the first stage; elsewhere every graph reads it."""

    state: StageState | None

    def make_outputs(self, largest: int) -> Tensors:
        rows, decoder = self.tokens(largest), self.decoder
        self.state = None if decoder.is_first else decoder.empty_state(rows)
        return self.make_last_outputs(rows) if decoder.is_last else named(decoder.empty_state(rows))

    @abstractmethod
    def make_last_outputs(self, rows: int) -> Tensors:
        """Room for the results of the last stage."""

    @abstractmethod
    def finish(self, results: Tensors, batch: ForwardBatch) -> LogitsOutput:
        """From the last stage's results to its logits."""

    def state_of(self, rows: int) -> StageState | None:
        if self.state is None:
            return None
        return StageState(**{name: held[:rows] for name, held in named(self.state).items()})

    def forward(self, batch: ForwardBatch) -> LogitsOutput | StageState:
        comm = self.site.comm
        for received in named(self.state_of(batch.num_tokens)).values():
            comm.receive_previous(received)
        results = self.replay(batch)
        if self.decoder.is_last:
            return self.finish(results, batch)
        for result in results.values():
            comm.send_next(result)
        return StageState(**results)


def named(state: StageState | None) -> dict[str, torch.Tensor]:
    if state is None:
        return {}
    parts = {"hidden": state.hidden, "residual": state.residual}
    return {name: rows for name, rows in parts.items() if rows is not None}
