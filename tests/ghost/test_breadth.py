"""The breadth table: each model's shape, cut or whole, and its page."""

from typing import Any

import pytest

from benchmarks.real_starts import breadth
from benchmarks.real_starts.breadth_page import because, page

ROW: dict[str, Any] = {
    "release": "1.2.3", "torch": "2", "cuda": "13.0", "gpu": "b200", "model": "m", "layers": None, "tp": 8,
    "ending": "refused", "phase": "start", "text": "ValueError: no | such\n flag", "kv_tokens": None,
    "inexact": [["stub", "cuOne", "start", "a.py:1 f"], ["stub", "cuOne", "weights", "b.py:2 g"]],
    "cpu": 3.5, "commit": "abc",
}  # fmt: skip


@pytest.mark.parametrize("name", breadth.MODELS)
def test_every_list_of_a_cut_model_has_as_many_layers_as_the_model(name: str) -> None:
    whole, cut = breadth.config(breadth.MODELS[name], 0), breadth.config(breadth.MODELS[name], 4)
    layers = whole["num_hidden_layers"]
    per_layer = {key for key, one in whole.items() if isinstance(one, (list, str)) and len(one) == layers}
    assert layers > 4 and cut["num_hidden_layers"] == 4
    assert all(len(cut[key]) == 4 for key in per_layer)
    assert whole.keys() == cut.keys()


def test_a_model_of_more_gpus_than_a_node_has_is_started_as_its_first_node(tmp_path: Any) -> None:
    assert "--nnodes" in breadth.command("kimi-k2", 4, tmp_path)
    assert "--nnodes" not in breadth.command("deepseek-r1", 4, tmp_path)


def test_the_page_says_a_finding_once_and_a_refusal_in_its_words() -> None:
    assert because(ROW["inexact"]) == ["stub cuOne"]
    line = "| m | 8 | all | refused in start: ValueError: no \\| such flag |  | stub cuOne | 3.5 | abc |"
    assert line in page([ROW])


def test_a_start_without_findings_is_exact_on_the_page() -> None:
    assert "| exact |" in page([{**ROW, "ending": "ready", "text": None, "kv_tokens": 5, "inexact": []}])
