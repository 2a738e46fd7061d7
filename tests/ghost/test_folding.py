"""Which layers of a model count as equal, and what a layer's arguments hold."""

from dataclasses import dataclass
from signal import SIGINT, SIGTERM
from types import SimpleNamespace

import torch

from runtime.folding.inside.alike import kinds
from runtime.folding.inside.fold import parts_of
from runtime.folding.inside.state import form_of, get, put, state


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
    assert form_of(SIGINT) != form_of(SIGTERM)  # two members of an enum are two arguments
    batch.stream = None
    assert state([batch]).form != before.form


def test_parts_of_layers_are_compared_at_the_layers_places_and_a_shared_one_is_none() -> None:
    shared = torch.nn.Sequential(torch.nn.Linear(8, 8))
    layers = [Layer(0), Layer(1), Layer(2)]
    for layer in layers[1:]:
        layer.attention, layer.shared = torch.nn.Sequential(torch.nn.Linear(8, 8)), shared
    assert parts_of(layers) == [[None, layers[1].attention, layers[2].attention]]
