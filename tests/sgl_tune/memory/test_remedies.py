"""What would help a server that ran out of memory: whole starts, the mildest of each kind, not for long."""

from dataclasses import replace
from pathlib import Path

from runtime.server.units import MIB
from runtime.sglang.releases import NEWEST, Release
from sgl_tune.errors import WorkFailed
from sgl_tune.memory.remedies import attempts_for, helpful
from sgl_tune.memory.report import MemoryReport, Remedy, Sizes
from sgl_tune.memory.starting import Change, Layout, Started, changed_command
from tests.sgl_tune.memory import records
from tests.sgl_tune.memory.records import ENDED, arguments, died, made, phase, reading, ready

ARGV = ("--model-path", "m", "--mem-fraction-static=0.9")


def report(fraction: float = 0.9, chunk: int = 8192) -> MemoryReport:
    """It died in autotune, where 3.40 of 140 GiB were missing."""
    found = records.report(died(), 100 * MIB)
    return replace(found, sizes=Sizes(mem_fraction_static=fraction, chunked_prefill_size=chunk))


class Server:
    """Fits up to a fraction, with few requests, or with short ones."""

    release: Release = NEWEST

    def __init__(self, most: float, seconds: float = 10.0, requests: int = 0, context: int = 0) -> None:
        self.most, self.seconds, self.requests, self.context = most, seconds, requests, context
        self.said: list[str] = []

    def start(self, change: Change, least: int | None = None, snapshot: Path | None = None) -> Started:
        self.said.append(change.line)
        flags = {name: float(value or 0) for name, value in change.parts}
        fits = flags.get("mem-fraction-static", 1.0) <= self.most
        fits = fits or flags.get("max-running-requests", 1 << 30) <= self.requests
        fits = fits or flags.get("context-length", 1 << 30) <= self.context
        record = ready() if fits else died()
        return Started((records.report(record, MIB),), Layout(), seconds=self.seconds)

    def command(self, change: Change) -> str:
        return changed_command(ARGV, {"SGLANG_X": "1"}, change)


def helped(
    server: Server, layout: Layout = Layout(), found: MemoryReport | None = None
) -> tuple[tuple[Remedy, ...], tuple[str, ...]]:
    return helpful(Started((found or report(),), layout), server)


def test_the_first_fraction_is_lower_by_what_was_missing() -> None:
    server = Server(most=0.9)
    remedies, left = helped(server)
    assert remedies[0].flags == "--mem-fraction-static 0.870"
    assert "914,039 KV tokens per rank" in remedies[0].cost and not left
    assert server.said[0] == "--mem-fraction-static 0.870"


def test_a_remedy_is_the_users_own_command_with_the_flag_changed() -> None:
    remedies, _ = helped(Server(most=0.9))
    assert remedies[0].command == (
        "SGLANG_X=1 python -m sglang.launch_server --model-path m --mem-fraction-static 0.870"
    )


def test_a_fraction_that_fails_too_is_lowered_further() -> None:
    remedies, _ = helped(Server(most=0.86))
    assert [one.flags for one in remedies] == ["--mem-fraction-static 0.850"]


def test_requests_are_of_all_dp_ranks() -> None:
    server = Server(most=0.0, seconds=1.0, requests=2048)
    remedies, _ = helped(server, Layout(tp=8, dp=8))
    assert [one.flags for one in remedies] == ["--max-running-requests 2048"]
    assert remedies[0].cost.startswith("at most 256 requests at once per rank")


def test_what_there_was_no_time_for_is_named() -> None:
    server = Server(most=0.0, seconds=25.0)
    remedies, left = helped(server)
    assert remedies == () and len(server.said) == 3
    assert left == ("--chunked-prefill-size 4096", "--max-running-requests 1024")


def test_a_remedy_whose_start_breaks_off_leaves_the_others() -> None:
    class Broken(Server):
        def start(self, change: Change, least: int | None = None, snapshot: Path | None = None) -> Started:
            started = super().start(change, least, snapshot)
            if change.line.startswith("--mem-fraction-static"):
                raise WorkFailed("the start ended without an answer")
            return started

    remedies, left = helped(Broken(most=0.0, seconds=1.0, requests=1024))
    assert [one.flags for one in remedies] == ["--max-running-requests 1024"] and not left


def test_the_change_that_costs_least_comes_first() -> None:
    """A lower fraction costs a share of the KV cache, and fewer requests cost service."""
    sizes = Sizes(mem_fraction_static=0.9, kv_tokens=1_000_000, max_running_requests=2048)
    remedies, _ = helped(Server(0.9, 1.0, requests=1024), found=replace(report(), sizes=sizes))
    assert [one.flags.split()[0] for one in remedies] == ["--mem-fraction-static", "--max-running-requests"]
    assert remedies[0].cost == "9 % fewer KV tokens (914,039 per rank)"
    poor = replace(report(), sizes=replace(sizes, kv_tokens=3_000_000))
    remedies, _ = helped(Server(0.9, 1.0, requests=1024), found=poor)
    assert remedies[0].flags == "--max-running-requests 1024", "the fraction would cost 70 % of the tokens"


def test_an_absurd_table_of_requests_names_the_context_length() -> None:
    sizes = Sizes(0.9, kv_tokens=1_000_000, context_length=1_048_576, max_running_requests=4096)
    remedies, _ = helped(Server(0.9, 1.0, context=524_288), found=replace(report(), sizes=sizes))
    assert remedies[0].flags == "--context-length 524288"
    assert "the table of 4,096 requests of 1,048,576 tokens takes 16.00 GiB" in remedies[0].cost


def test_graphs_are_given_up_for_graphs_and_gpus_added_for_weights() -> None:
    numbers = report()
    assert numbers.failure is not None
    in_graphs, loading = (
        replace(numbers, run=replace(numbers.run, failure=replace(numbers.failure, phase=phase)))
        for phase in ("decode graphs", "weights")
    )
    first = [kind[0].changes for kind in attempts_for(in_graphs, Layout())]
    assert first == [{"mem_fraction_static": 0.87}, {"disable_cuda_graph": True}]
    assert [one.changes for one in attempts_for(loading, Layout(tp=2))[0]] == [{"tp_size": 4}, {"tp_size": 8}]


def test_a_pool_without_room_wants_a_higher_fraction() -> None:
    event = {"event": "died", "phase": "kv pool", "type": "ValueError", "text": "no memory left", "stack": []}
    steps = (phase("communicator", 0, 0, 0, 0), phase("weights", 0, *[120.0] * 3))
    record = made(arguments(), *steps, {**event, **reading(120, 120, 120, 120)}, ENDED)
    found = replace(records.report(record, MIB), sizes=Sizes(mem_fraction_static=0.8))
    first = [one.changes for one in attempts_for(found, Layout())[0]]
    assert first == [{"mem_fraction_static": 0.95}, {"mem_fraction_static": 0.9}]


def test_nothing_is_tried_where_memory_is_not_what_lacked() -> None:
    assert attempts_for(records.report(died("TypeError", "no"), MIB), Layout()) == []
    assert attempts_for(records.report(ready(), MIB), Layout()) == []
