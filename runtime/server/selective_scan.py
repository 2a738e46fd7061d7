"""Mamba's first mixer, as a family's file tells it."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.server.state_shape import StateShape, check_split


@dataclass(frozen=True, slots=True)
class SelectiveScanConfig:
    """Each channel is a head of one value, and forgets by places of the state, each at a rate of its own.

    Steps, keys and queries are made of what a convolution answered: steps through `step_rank` columns.
    SGLang calls keys and queries B and C, and counts a place as Mamba-2's of as many heads.
    """

    channels: int
    state_size: int
    conv_kernel: int
    step_rank: int
    conv_bias: bool
    bias: bool
    norm_eps: float | None = None  # of steps, keys and queries, normed by no weights, where they are

    @property
    def narrow(self) -> int:
        """Columns of the matrix that makes the three."""
        return self.step_rank + 2 * self.state_size

    def state_shape(self, ranks: int) -> StateShape:
        check_split("the number of Mamba channels", self.channels, ranks)
        channels = self.channels // ranks
        return StateShape((channels, self.conv_kernel - 1), (channels, 1, self.state_size))
