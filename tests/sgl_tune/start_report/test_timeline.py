"""Each second of a start goes to one phase: that of the rank the others wait for."""

from pathlib import Path

import pytest

from sgl_tune.start_report.table import headline
from tests.sgl_tune.start_report.logs import entry, flashinfer, head, loaded, report, seconds, served


def test_one_rank_from_its_first_line_to_its_ready_line(tmp_path: Path) -> None:
    graphs = entry(23, "Capture target decode CUDA graph begin. backend=full, bs=[1, 2]") + entry(
        30, "Capture target decode CUDA graph end. elapsed=6.81 s, mem usage=0.33 GB"
    )
    found = report(tmp_path, head() + loaded() + graphs + served(31))
    assert found.ready and found.wall_seconds == 34 and found.unexplained_seconds == 0
    assert seconds(found) == {
        "arguments": 1, "processes": 9, "communicator": 2, "weights": 10, "kv pool": 1, "decode graphs": 7,
        "scheduler": 1, "http server": 1, "warm-up request": 2,
    }  # fmt: skip


def test_the_rank_that_is_behind_holds_the_start_up(tmp_path: Path) -> None:
    """TP1 reads its weights for 30 s. TP0 waits for them, not for the pool."""
    text = head() + loaded("TP0") + loaded("TP1", weights=30) + served(50)
    found = report(tmp_path, text)
    assert seconds(found)["weights"] == 30 and seconds(found)["kv pool"] == 1
    assert found.ranks == 2 and found.wall_seconds == 53


def test_a_module_that_is_built_is_taken_out_of_what_it_was_built_in(tmp_path: Path) -> None:
    text = (
        head() + loaded()
        + entry(23, "Running FlashInfer autotune with cache: /c/rank.json")
        + flashinfer(24, "Building JIT module norm; this can take several minutes on first use.")
        + flashinfer(60.5, "Building JIT module trtllm_utils; this can take several minutes on first use.")
        + flashinfer(70.5, "[Autotuner]: Config cache hit for x (runner=MoERunner, source=config file)")
        + entry(75, "FlashInfer autotune completed.")
        + served(80)
    )  # fmt: skip
    found = report(tmp_path, text)
    assert found.compiled == ("norm", "trtllm_utils")
    assert seconds(found)["FlashInfer JIT"] == pytest.approx(46.5)
    assert seconds(found)["tactics"] == pytest.approx(5.5)
    jit = next(phase for phase in found.phases if phase.name == "FlashInfer JIT")
    assert (jit.store, jit.hit, jit.saves_seconds) == ("flashinfer-jit", False, pytest.approx(46.5))
    assert jit.cause == "norm 36.5 s; trtllm_utils 10.0 s"


BEGUN = "[AutoTuner]: Tuning op:   0%|   | 0/6 [00:00<?, ?profile/s]"
ENDED = "[AutoTuner]: Tuning op: 100%|###| 6/6 [00:12<00:00,  0.48profile/s]"


@pytest.mark.parametrize("blanks", ["", "\n", "\n \n\n"])
@pytest.mark.parametrize("end", ["\n", "\r"])
def test_tuning_after_a_build_is_no_building_after_blank_lines(tmp_path: Path, blanks: str, end: str) -> None:
    """The bars have only tqdm's time: 6 profiles at 0.48 per second take 12.5 s."""
    text = (
        head() + loaded()
        + entry(23, "Running FlashInfer autotune with cache: /c/rank.json")
        + flashinfer(25, "Building JIT module norm; this can take several minutes on first use.")
        + blanks + end.join((BEGUN, ENDED, ENDED)) + "\n" + blanks
        + entry(75, "FlashInfer autotune completed.")
        + served(80)
    )  # fmt: skip
    found = report(tmp_path, text)
    assert seconds(found)["tactics"] == pytest.approx(2 + 12.5)
    assert seconds(found)["FlashInfer JIT"] == pytest.approx(50 - 12.5)
    assert found.start.bars.profiled == {"op": 6}


def test_a_warm_spares_what_was_measured_and_not_what_was_compiled_beside_it(tmp_path: Path) -> None:
    """As in a log of an H200: no line names what was compiled before the first bar."""
    text = (
        head() + loaded()
        + entry(23, "Running FlashInfer autotune with cache: /c/rank.json")
        + "[AutoTuner]: Tuning gemm1: 100%|###| 20/20 [00:24<00:00,  2.22s/profile]\r"
        + "[AutoTuner]: Tuning gemm1: 100%|###| 20/20 [00:24<00:00,  1.21s/profile]\n"
        + "[AutoTuner]: Tuning gemm2: 100%|###| 20/20 [00:20<00:00,  1.04s/profile]\n"
        + entry(97, "FlashInfer autotune completed.")
        + served(99)
    )  # fmt: skip
    (tactics,) = (phase for phase in report(tmp_path, text).phases if phase.name == "tactics")
    assert tactics.seconds == 74
    assert tactics.saves_seconds == pytest.approx(24.2 + 20.8)
    assert tactics.cause.endswith("; measuring took 45.0 s, the rest is compiling or loading at first use")


@pytest.mark.parametrize("blanks", ["", "2026-08-02T10:00:30Z \n"])
def test_a_bar_that_a_collector_stamped_at_its_end_began_before(tmp_path: Path, blanks: str) -> None:
    def at(second: int, text: str) -> str:
        return f"2026-08-02T10:{second // 60:02d}:{second % 60:02d}Z {text}\n"

    lines = (
        at(0, "[2026-08-02 10:00:00] Running FlashInfer autotune with cache: /c/rank.json"),
        at(5, "2026-08-02 10:00:05,0 - INFO - core.py:1 - flashinfer.jit: Building JIT module norm"),
        blanks,
        at(45, ENDED),
        at(50, "[2026-08-02 10:00:50] FlashInfer autotune completed."),
    )
    found = report(tmp_path, "".join(lines))
    assert seconds(found) == {"tactics": pytest.approx(5 + 12.5 + 5), "FlashInfer JIT": pytest.approx(27.5)}


def test_what_no_line_names_is_unexplained_and_the_sum_is_the_wall(tmp_path: Path) -> None:
    text = entry(0, "something else") + entry(100, "Init torch distributed begin.", "TP0")
    text += loaded("TP0", begin=100) + served(140)
    found = report(tmp_path, text)
    assert found.unexplained_seconds == 100
    assert sum(seconds(found).values()) + 100 == found.wall_seconds


def test_a_line_that_one_rank_lacks_delays_nobody_and_a_death_has_one_phase(tmp_path: Path) -> None:
    ends = entry(12, "Init torch distributed ends. elapsed=2.00 s, mem usage=0.69 GB", "TP1")
    whole = head() + loaded("TP0", begin=10) + loaded("TP1", begin=10)
    assert whole.count(ends) == 1
    lacks = whole.replace(ends, "")
    assert seconds(report(tmp_path, lacks + served(30))) == seconds(report(tmp_path, whole + served(30)))
    pools = [line for line in lacks.splitlines(True) if "KV Cache" not in line and "pool end" not in line]
    killed = entry(26, "Child process unexpectedly failed with exitcode=-9. pid=311")
    found = report(tmp_path, "".join(pools) + killed)
    assert found.outcome.headline.startswith("DIED in kv pool:") and found.stands_in == "kv pool"
    assert seconds(found)["kv pool"] == 4 and seconds(found)["communicator"] == 2


def test_a_death_without_a_time_is_reported(tmp_path: Path) -> None:
    text = "usage: launch_server.py [-h]\nlaunch_server.py: error: unrecognized arguments: --foo\n"
    found = report(tmp_path, text)
    assert "does not accept" in found.outcome.headline and not found.ready and not found.phases
    assert headline(found).startswith("no line has a time")
