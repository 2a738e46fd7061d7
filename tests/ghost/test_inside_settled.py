"""What a start decides early: its graphs, in each form of a release's arguments, and what is missing."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from runtime.record.events import record_of
from runtime.record.parts import Asked
from runtime.sglang.inside import start
from runtime.sglang.inside.settled import AUTOTUNE, _gate, _graphs, _NotBuilt, _Seen
from tests.ghost.told import told

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


def test_a_record_says_why_it_lacks_what_sglang_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    unlike = SimpleNamespace(model_config=SimpleNamespace())  # a runner of a release that moved everything
    events = told(monkeypatch, lambda: start._settle(unlike, SimpleNamespace(), None))
    record = record_of(Asked((), 0, "h200", "ghost", "", "", {}), events)
    (lack,) = record.lacks
    assert record.settled is None and lack.startswith("settled: AttributeError: ")


def test_a_quantization_that_cannot_be_read_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> None:
        raise ValueError("no hf_quant_config.json")

    loading = SimpleNamespace(LoadConfig=SimpleNamespace)
    monkeypatch.setitem(sys.modules, "sglang.srt.configs.load_config", loading)
    weights = SimpleNamespace(get_quant_config=read)
    monkeypatch.setitem(sys.modules, "sglang.srt.model_loader.weight_utils", weights)
    model = _NotBuilt(SimpleNamespace(quantization="modelopt_fp4"))
    (finding,) = told(monkeypatch, lambda: model.quant_config)
    assert (finding["event"], finding["name"]) == ("inexact", "model.quant_config")
    assert "ValueError: no hf_quant_config.json" in finding["why"]


def test_the_file_of_a_gate_has_the_model_as_typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module: Any = ModuleType(AUTOTUNE)
    module.should_run_flashinfer_autotune = lambda runner: True
    module.flashinfer_autotune_cache_path = lambda runner: tmp_path / runner.server_args.model_path.strip("/")
    monkeypatch.setitem(sys.modules, AUTOTUNE, module)
    folder = SimpleNamespace(SGLANG_CACHE_DIR=SimpleNamespace(get=lambda: str(tmp_path)))
    monkeypatch.setitem(sys.modules, "sglang.srt.environ", SimpleNamespace(envs=folder))
    seen = _Seen(SimpleNamespace(server_args=SimpleNamespace(model_path="/made/folder")))
    assert _gate(seen, "org/model") == {"tunes": True, "file": "org/model"}
    assert _gate(seen, None) == {"tunes": True, "file": "made/folder"}
