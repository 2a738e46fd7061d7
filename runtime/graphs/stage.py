"""What graphs of a whole stage share: the state that comes from the stage before, and goes to the next."""

from __future__ import annotations

from abc import abstractmethod

from runtime.decoder.decoder import StageState
from runtime.graphs.base import GraphRunner, Tensors


class StageGraphs(GraphRunner):
    """`state` is None on the first stage; elsewhere every graph reads it."""

    state: StageState | None

    def make_outputs(self, largest: int) -> Tensors:
        rows, decoder = self.tokens(largest), self.decoder
        self.state = None if decoder.is_first else decoder.empty_state(rows)
        return self.make_last_outputs(rows) if decoder.is_last else decoder.empty_state(rows).parts

    @abstractmethod
    def make_last_outputs(self, rows: int) -> Tensors:
        """Room for the results of the last stage."""

    def state_of(self, rows: int) -> StageState | None:
        if self.state is None:
            return None
        return StageState(**{name: held[:rows] for name, held in self.state.parts.items()})
