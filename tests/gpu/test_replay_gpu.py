"""A replay on a GPU: choices that were just tuned hold, and worse ones are seen."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest
import torch
from flashinfer.autotuner import AutoTuner, autotune

from runtime.autotune.candidate import DEFAULT
from runtime.autotune.replay import Replayed, install_replay_tuner
from runtime.autotune.tuner import SearchTuner
from sgl_tune.cache.record import parse_key
from tests.runtime.tuned_layer import installed

if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9:
    pytest.skip("needs a Hopper GPU", allow_module_level=True)

from benchmarks.tuning_search import Layer, Shape

SHAPE = Shape(hidden=2048, intermediate=768, experts=128, top_k=8, ep=1, tokens=2048, tune_max=2048)


@pytest.fixture(scope="module")
def layer() -> Iterator[Layer]:
    with installed(AutoTuner()):
        layer = Layer(SHAPE)
        layer.forward()
        yield layer


@pytest.fixture(scope="module")
def tuned(layer: Layer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, float]]:
    """A file of our search, and what each winner's kernel took in it."""
    path = tmp_path_factory.mktemp("tuned") / "tuned.json"
    tuner = SearchTuner()
    with installed(tuner), autotune(True, cache=str(path)):
        layer.forward()
    return path, {result.file_key: result.best_ms for result in tuner.results}


def _replay(layer: Layer, path: Path) -> list[Replayed]:
    with installed(None):
        tuner = install_replay_tuner(torch.device("cuda"))
        assert tuner.load_configs(str(path))
        with torch.inference_mode(), autotune(True):
            layer.forward()
        return tuner.replayed


def test_choices_of_a_moment_ago_hold(layer: Layer, tuned: tuple[Path, dict[str, float]]) -> None:
    path, then = tuned
    started = time.perf_counter()
    replayed = _replay(layer, path)
    seconds = time.perf_counter() - started
    assert {entry.key for entry in replayed} == then.keys()
    assert all(entry.best_ms and entry.default_ms and entry.failed is None for entry in replayed)
    gains = {entry.bucket: entry.default_ms / entry.best_ms for entry in replayed}
    # The layer's play-off decides, so a winner may lose a little in the loop of its kernel alone.
    assert median(gains.values()) > 1 and min(gains.values()) > 0.9
    drift = median(entry.best_ms / then[entry.key] for entry in replayed)
    assert 0.85 < drift < 1.15
    assert seconds < 5


def test_worse_choices_are_seen(layer: Layer, tuned: tuple[Path, dict[str, float]], tmp_path: Path) -> None:
    """Give every entry the tactic that is best for one row."""
    document = json.loads(tuned[0].read_text())
    document.pop("_generation", None)
    for key in [key for key in document if key.startswith("(")]:
        of_one_row = key.replace(f"(({parse_key(key).bucket}, ", "((1, ", 1)
        document[key] = document[of_one_row]
    path = tmp_path / "worse.json"
    path.write_text(json.dumps(document))
    best = {entry.key: entry.best_ms for entry in _replay(layer, tuned[0])}
    worse = [entry for entry in _replay(layer, path) if entry.tactic != DEFAULT.tactic]
    slower = [entry for entry in worse if entry.best_ms > 1.1 * best[entry.key]]
    assert slower
