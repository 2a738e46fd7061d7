"""A stock server's start is recorded on the ghost, and its calls are replayed there without the server."""

import json
from pathlib import Path

from runtime.record.record import Record
from runtime.sglang.tactics import Tactics
from sgl_tune.cli.format import DocumentFormat, sink
from sgl_tune.cli.out import Output
from sgl_tune.recorded.caches import readings_of
from sgl_tune.recorded.plan import Whose, plan_of
from sgl_tune.warm.devices import Devices
from sgl_tune.warm.story import Settings, warm_records
from tests.ghost.c_running import BUILT
from tests.ghost.stock import GPU, Stock
from tests.sgl_tune.running import ROOT
from tests.warm.recorded.on_ghost import how_on_ghost

CONFIG = ROOT / "benchmarks" / "real_starts" / "models" / "qwen3-30b" / "config.json"
SMALL = {"num_hidden_layers": 2, "vocab_size": 1024, "num_experts": 16}
FLAGS = (
    "--moe-runner-backend flashinfer_cutlass --attention-backend triton --sampling-backend pytorch "
    "--disable-cuda-graph --tp 2 --dp 2 --enable-dp-attention --max-running-requests 64"
)


def start(stock: Stock, model: Path, tactics: Tactics | None = None) -> Record:
    record = stock.ask(["--model-path", str(model), *FLAGS.split()], title=str(model), tactics=tactics)
    assert record.ending.how == "ready", record.ending
    return record


def test_a_server_measures_nothing_on_what_was_replayed_without_it(stock: Stock, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**json.loads(CONFIG.read_text()), **SMALL}))
    record = start(stock, tmp_path)
    assert sum(key.profiled for key in record.keys) > 0
    root = tmp_path / "cache"
    plan = plan_of([record], Whose("m", str(tmp_path), root), 1)
    (cache,) = plan.caches
    assert [path.rpartition("/")[2] for path in cache.paths] == [
        f"rank_tp{rank}_pp0_dp{rank}.json" for rank in range(2)
    ]
    keys = {key for op in cache.ops for key in op.keys}
    assert {key.key for key in record.keys if key.mode == "tune"} <= keys
    how = how_on_ghost(stock.installed.python, GPU.key, BUILT)
    settings = Settings(Devices("cuda", (0,), 1), 300, how=how)
    (done,) = warm_records(plan, settings, Output(sink(DocumentFormat.json, False))).caches
    assert done.report.tuned_keys == keys and not done.report.failed
    assert done.proof is not None and done.proof.hits == len(keys) and not done.proof.misses
    files = {path: (root / path).read_bytes() for path in cache.paths}
    again = start(stock, tmp_path, Tactics(files))
    assert {key.key for key in again.keys} == {key.key for key in record.keys}
    assert sum(key.profiled for key in again.keys) == 0
    (reading,) = readings_of([again], files)
    assert reading.is_good and reading.files == {cache.paths[0]: True}
    assert any("Loaded" in line and cache.paths[0] in line for line in reading.said), reading.said
    elsewhere = Tactics(files, {"cudnn_version": "another"})
    ignored = start(stock, tmp_path, elsewhere)
    (reading,) = readings_of([ignored], files)
    assert reading.files == {cache.paths[0]: False} and reading.profiled
    assert any("different environment" in line and "cudnn" in line for line in reading.said), reading.said
    (reading,) = readings_of([start(stock, tmp_path)], ())
    assert reading.files == {cache.paths[0]: None} and reading.profiled, "an earlier start's file was found"
