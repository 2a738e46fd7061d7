"""What one layer keeps of one request, where that is no token's."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.server.errors import ConfigError


@dataclass(frozen=True, slots=True)
class StateShape:
    """Of one layer and one request: the inputs that the convolution still sees, and what is remembered."""

    conv: tuple[int, int]  # channels, steps
    recurrent: tuple[int, int, int]  # heads, values, keys
    row: int = 0  # of the last token, so wide, kept as those inputs are

    def nbytes(self, conv_bytes: int, recurrent_bytes: int) -> int:
        channels, steps = self.conv
        heads, values, keys = self.recurrent
        return (channels * steps + self.row) * conv_bytes + heads * values * keys * recurrent_bytes


def check_split(what: str, count: int, ranks: int) -> None:
    if count % ranks:
        raise ConfigError(f"{what} {count} cannot be split over {ranks} ranks: choose sizes that divide it")
