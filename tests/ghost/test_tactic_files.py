"""The names of all ranks' tactic files: by the server's own function, whatever form a release gives it."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from runtime.sglang.inside import tactic_files
from tests.ghost.told import arguments as server
from tests.ghost.told import told

RUNNER = SimpleNamespace(
    server_args=SimpleNamespace(model_path="/made/m", tp_size=2),
    ps=SimpleNamespace(tp_rank=0, pp_rank=0, dp_rank=None, tp_size=2),
)
OLD = SimpleNamespace(server_args=RUNNER.server_args, tp_rank=0, pp_rank=0, dp_rank=None)


def by_part(runner: Any) -> str:
    ps = runner.ps
    return f"/{runner.server_args.model_path}/{ps.tp_size}/tp{ps.tp_rank}_pp{ps.pp_rank}_dp{ps.dp_rank or 0}"


def by_runner(runner: Any) -> str:
    where = runner.server_args.model_path
    return f"/{where}/2/tp{runner.tp_rank}_pp{runner.pp_rank}_dp{runner.dp_rank or 0}"


@pytest.fixture
def by_function(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that asks other functions of its own module."""
    module = ModuleType("naming_by_function")
    source = (
        "def name(runner):\n"
        "    own, model = get_parallel(), get_model()\n"
        "    return f'/{model.model_path}/2/tp{own.tp_rank}_pp{own.pp_rank}_dp{own.dp_rank or 0}'\n"
    )
    module.__dict__.update(get_parallel=lambda: RUNNER.ps, get_model=lambda: RUNNER.server_args)
    exec(source, module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.mark.parametrize(("naming", "runner"), [(by_part, RUNNER), (by_runner, OLD)])
def test_each_rank_has_the_name_that_the_server_gives_it(naming: Any, runner: Any) -> None:
    found = tactic_files.names(naming, runner, server(tp_size=2, pp_size=2), naming(runner))
    ranks = [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert found == [f"//made/m/2/tp{tp}_pp{pp}_dp0" for tp, pp in ranks]


def test_a_model_is_named_as_it_was_typed(by_function: Any) -> None:
    own = by_function.name(RUNNER)
    found = tactic_files.names(by_function.name, RUNNER, server(tp_size=2), own, "org/model")
    assert found == ["/org/model/2/tp0_pp0_dp0", "/org/model/2/tp1_pp0_dp0"]
    assert by_function.name(RUNNER) == own


def test_attention_ranks_and_servers_side_by_side_differ_by_dp() -> None:
    attention = server(tp_size=4, dp_size=4, enable_dp_attention=True)
    found = tactic_files.names(by_part, RUNNER, attention, by_part(RUNNER))
    assert [name.rpartition("/")[2] for name in found] == [f"tp{r}_pp0_dp{r}" for r in range(4)]
    beside = tactic_files.names(by_part, RUNNER, server(tp_size=2, dp_size=2), by_part(RUNNER))
    assert [name[-7:] for name in beside] == ["pp0_dp0", "pp0_dp0", "pp0_dp1", "pp0_dp1"]


def test_a_server_of_two_nodes_names_the_files_of_both() -> None:
    second = server(tp_size=4, nnodes=2, node_rank=1)
    own = by_part(tactic_files._Other(RUNNER, {"tp_rank": 2, "pp_rank": 0, "dp_rank": 0}))
    found = tactic_files.names(by_part, RUNNER, second, own)
    assert [name.rpartition("/")[2] for name in found] == [f"tp{rank}_pp0_dp0" for rank in range(4)]


@pytest.mark.parametrize(
    ("naming", "why"),
    [
        (lambda runner: "tp0", "two ranks have the same"),
        (lambda runner: f"tp{runner.ps.tp_rank + 7}", "its own file is not among them"),
        (lambda runner: runner.nowhere, "AttributeError: "),
    ],
)
def test_where_names_cannot_be_told_there_are_none_and_the_record_says_why(
    naming: Any, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []
    (lack,) = told(
        monkeypatch, lambda: found.extend(tactic_files.names(naming, RUNNER, server(tp_size=2), "tp0"))
    )
    assert not found and lack["event"] == "lacks" and lack["why"].startswith(why)
