"""Which layers of a model count as equal, and what a layer's arguments hold."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import torch

from runtime.folding.inside.alike import kinds
from runtime.folding.inside.state import get, put, state


class Layer(torch.nn.Module):
    def __init__(self, number: int, width: int = 8, window: int | None = None) -> None:
        super().__init__()
        self.number, self.name, self.window = number, f"layers.{number}.experts.3", window
        self.inner = torch.nn.Linear(width, 8)


def test_layers_are_equal_but_for_their_numbers_and_a_window_or_another_width_makes_another_kind() -> None:
    assert kinds([Layer(number) for number in range(12)]) == [0] * 12
    assert kinds([Layer(0), Layer(1, window=4), Layer(2), Layer(3, window=4), Layer(4, 9)]) == [0, 1, 0, 1, 4]


@dataclass(frozen=True, slots=True)
class Stream:
    turn: int
    batch: object


def test_what_a_batch_holds_is_seen_through_small_objects_and_set_even_where_they_are_frozen() -> None:
    large = SimpleNamespace(**{f"field{number}": number for number in range(9)})
    batch = SimpleNamespace(large=large, words=["a"])
    batch.stream = Stream(3, batch)
    before = state([batch])
    assert before.numbers == {(0, "stream", "turn"): 3}
    put([batch], (0, "stream", "turn"), 4)
    assert get([batch], (0, "stream", "turn")) == 4 and state([batch]).form == before.form
    batch.stream = None
    assert state([batch]).form != before.form
