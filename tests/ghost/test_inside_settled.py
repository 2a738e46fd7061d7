"""Which graphs a server captures, in each form in which a release holds its resolved arguments."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from runtime.sglang.inside.settled import _graphs

DICTS = {"decode": {"backend": "full", "bs": [1, 2]}, "prefill": {"backend": "disabled", "bs": [4]}}
OBJECTS = SimpleNamespace(**{name: SimpleNamespace(**phase) for name, phase in DICTS.items()})
FLAGS = {
    "disable_cuda_graph": False,
    "cuda_graph_bs": [1, 2],
    "disable_piecewise_cuda_graph": True,
    "piecewise_cuda_graph_tokens": [4],
}


@pytest.mark.parametrize("given", [{"cuda_graph_config": DICTS}, {"cuda_graph_config": OBJECTS}, FLAGS])
def test_graphs_are_read_in_each_form(given: dict[str, Any]) -> None:
    resolved = SimpleNamespace(**given)
    assert _graphs(resolved, generates=True) == {"decode_graphs": [1, 2], "prefill_graphs": []}
    assert _graphs(resolved, generates=False) == {"decode_graphs": [], "prefill_graphs": []}
