"""A stock SGLang starts on the ghost: ready, out of memory, refused. The first run makes its environment."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime.ghost.outside import table
from runtime.record.events import Event
from runtime.record.record import Record
from tests.ghost.c_running import BUILT
from tests.ghost.stock import GPU, Smallest, Stock
from tests.sgl_tune.running import run_anew

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024,
    "intermediate_size": 2816, "num_hidden_layers": 2, "num_attention_heads": 16, "num_key_value_heads": 4,
    "vocab_size": 32000, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
# A layer's matrices, the embedding and the head, norms: of bfloat16.
ATTENTION = 1024 * (1024 + 2 * 256) + 1024 * 1024
WEIGHTS = 2 * (2 * (ATTENTION + 3 * 1024 * 2816 + 2 * 1024) + 2 * 32000 * 1024 + 1024)
KV_OF_A_TOKEN = 2 * 2 * 2 * 4 * 64
NO_GRAPHS = "--disable-cuda-graph"
FEW_GRAPHS = ("--cuda-graph-max-bs-decode", "4", "--cuda-graph-backend-prefill", "disabled")
SETTLED = (*FEW_GRAPHS, "--mem-fraction-static", "0.5", "--max-running-requests", "7")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def ask(stock: Stock, model: Path, *flags: str, **more: Any) -> Record:
    argv = ["--model-path", str(model), "--attention-backend", "triton", "--sampling-backend", "pytorch"]
    return stock.ask([*argv, *flags], **more)


@pytest.fixture(scope="module")
def ready(stock: Stock, model: Path) -> Record:
    return ask(stock, model, *SETTLED)


def test_a_start_becomes_ready_and_each_byte_of_its_weights_is_counted(ready: Record) -> None:
    assert ready.ending.how == "ready", ready.ending
    weights, pool = ready.phase("weights"), ready.phase("kv pool")
    assert weights is not None and pool is not None and ready.sizes is not None
    rotations = 4 << 20  # the table of a position's sines, and what the allocator rounds up
    assert 0 <= weights.allocated - weights.allocated_before - WEIGHTS < rotations
    assert 0 <= pool.allocated - weights.allocated - ready.sizes.kv_tokens * KV_OF_A_TOKEN < 1 << 30
    assert ready.phase("decode graphs") is not None
    assert Record.from_json(ready.to_json()) == ready


def test_what_a_phase_gives_back_before_it_ends_counts_in_its_least_free(stock: Stock, model: Path) -> None:
    record = ask(stock, model, "--chunked-prefill-size", "512", "--mem-fraction-static", "0.5")
    eager, graphs = record.phase("eager"), record.phase("prefill graphs")
    assert eager is not None and graphs is not None and graphs.reserved_peak > graphs.reserved
    assert graphs.least_free <= graphs.total - eager.outside - graphs.reserved_peak < graphs.free


def test_a_start_that_is_too_large_dies_in_torchs_own_words(stock: Stock, model: Path) -> None:
    record = ask(stock, model, "--mem-fraction-static", "0.99", "--chunked-prefill-size", "32768", NO_GRAPHS)
    assert record.ending.how == "died", record.ending
    assert record.ending.type == "OutOfMemoryError"
    assert "CUDA out of memory. Tried to allocate" in (record.ending.text or "")
    assert any("/sglang/" in frame for frame in record.ending.stack)


def test_this_machines_memory_says_nothing_of_the_server(stock: Stock, model: Path) -> None:
    flags = ("--enable-hierarchical-cache", "--hicache-size", "90000", *SETTLED)
    ending = ask(stock, model, *flags).ending
    assert ending.how == "broken" and "Not enough host memory" in (ending.text or ""), ending


def test_a_memory_saver_is_left_out_and_named(stock: Stock, model: Path) -> None:
    record = ask(stock, model, "--enable-memory-saver", *SETTLED)
    assert record.ending.how == "ready", record.ending
    assert "torch_memory_saver" in {one.name for one in record.inexact}


def test_a_crash_is_told_with_the_function_that_it_happened_in(stock: Stock, model: Path) -> None:
    started: list[int] = []

    def say(event: Event) -> None:
        started.extend([event["pid"]] if event["event"] == "began" else [])
        if event["event"] == "phase":
            os.kill(started[0], signal.SIGSEGV)

    ending = ask(stock, model, *SETTLED, say=say).ending
    assert ending.how == "broken", ending
    assert re.fullmatch(r"its process died of SIGSEGV in /.*:\d+ \w+", ending.text or ""), ending


def test_a_graph_that_has_no_room_outside_torch_dies_as_it_is_instantiated(stock: Stock, model: Path) -> None:
    large = table().with_numbers(graph=GPU.total_bytes)
    record = ask(stock, model, *FEW_GRAPHS, "--mem-fraction-static", "0.5", numbers=large)
    assert (record.ending.how, record.ending.phase) == ("died", "decode graphs"), record.ending
    assert "CUDA error: out of memory" in (record.ending.text or "")
    assert record.ending.stack[-1].endswith(" capture_end"), record.ending.stack


def test_what_sglang_refuses_is_refused_in_its_own_words(stock: Stock, model: Path) -> None:
    record = ask(stock, model, "--attention-backend", "no-such-backend")
    assert record.ending.how == "refused"
    assert "invalid choice: 'no-such-backend'" in (record.ending.text or "")


def test_a_folded_start_leaves_the_record_of_one_that_ran_each_layer(stock: Stock, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": 6}))
    graphs, told = ("--cuda-graph-max-bs-decode", "4", "--cuda-graph-bs-prefill", "64"), list[Event]()
    plain = ask(stock, tmp_path, *graphs, "--mem-fraction-static", "0.5", say=told.append)
    folded = ask(stock, tmp_path, *graphs, "--mem-fraction-static", "0.5", say=told.append, fold=True)
    assert [event["folded"] > 0 for event in told if event["event"] == "ready"] == [False, True]
    for one, other in zip(plain.phases, folded.phases, strict=True):
        assert replace(one, seconds=0) == replace(other, seconds=0)
    for part in ("sizes", "counted", "keys", "calls", "kernels", "modules", "inexact", "held", "settled"):
        assert getattr(folded, part) == getattr(plain, part), part


# A process that may make no namespace, as in many containers.
_CONFINED = """
import runpy, sys
from runtime.ghost.inside.cage import seccomp
from runtime.ghost.inside.cage.kernel import prctl
prctl(38, 1)
assert seccomp.restrict(with_datagrams=True)
sys.argv = ["sgl-tune", *sys.argv[1:]]
runpy.run_module("sgl_tune", run_name="__main__")
"""


def test_what_the_cage_lacks_is_said_beside_the_answer(smallest: Smallest, model: Path) -> None:
    command = ["mem-report", "--format", "json", "--gpu", "h200", "--server", str(smallest.python)]
    start = ["python", "-m", "sglang.launch_server", "--model-path", str(model), "--page-size", "x"]
    line = [sys.executable, "-c", _CONFINED, *command, "--", *start]
    variables = {**os.environ, "XDG_CACHE_HOME": str(BUILT.parent)}
    done = subprocess.run(line, env=variables, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2, done.stderr
    lacks = json.loads(done.stdout)["cage_lacks"]
    assert "network: no network namespace can be made (unshare is not allowed here)" in lacks
    assert f"warning: the cage around the server's start lacks: {'; '.join(lacks)}" in done.stderr


def test_a_rank_that_the_server_has_not_is_refused_before_it_waits(smallest: Smallest, model: Path) -> None:
    asked = ("--ranks", 9, "--gpu", "h200", "--server", smallest.python)
    ran = run_anew("mem-report", *asked, "--model-path", model, XDG_CACHE_HOME=str(BUILT.parent))
    assert ran.ends(2, "this server has ranks 0 to 0")


def test_a_start_to_the_gates_settles_what_a_whole_one_does(stock: Stock, model: Path, ready: Record) -> None:
    stopped = ask(stock, model, *SETTLED, until="gates")
    assert (stopped.ending.how, stopped.ending.phase) == ("stopped", "gates"), stopped.ending
    assert stopped.phase("kv pool") is None and stopped.cost.cpu < 3
    assert stopped.settled == ready.settled and stopped.arguments.keys() == ready.arguments.keys()
    found = stopped.settled
    assert found is not None and found.draft is None and not found.gate.tunes
    assert (found.config_class, found.dtype, found.kv_cache_dtype) == ("LlamaConfig", *2 * ("bfloat16",))
    assert (found.most_requests, found.decode_graphs, found.context_length) == (7, (1, 2, 4), 4096)


def test_a_start_that_stops_at_its_arguments_has_nothing_else(stock: Stock, model: Path) -> None:
    record = ask(stock, model, "--tp-size", "1", until="arguments")
    assert (record.ending.how, record.ending.phase) == ("stopped", "arguments"), record.ending
    assert record.arguments["tp_size"] == 1 and record.phases == () and record.settled is None
