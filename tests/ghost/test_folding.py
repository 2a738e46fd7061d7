"""Which layers of a model count as equal."""

from __future__ import annotations

import torch

from runtime.folding.inside.alike import kinds


class Layer(torch.nn.Module):
    def __init__(self, number: int, width: int = 8, window: int | None = None) -> None:
        super().__init__()
        self.number, self.name, self.window = number, f"model.layers.{number}.mlp", window
        self.inner = torch.nn.Linear(width, 8)


def test_layers_are_equal_but_for_their_numbers_and_a_window_or_another_width_makes_another_kind() -> None:
    assert kinds([Layer(number) for number in range(12)]) == [0] * 12
    assert kinds([Layer(0), Layer(1, window=4), Layer(2), Layer(3, window=4), Layer(4, 9)]) == [0, 1, 0, 1, 4]
