"""Watch points: the steps of a release, and the error that names a step that it lacks."""

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from runtime.ghost.inside import honesty
from runtime.sglang.inside import ranks, watch
from runtime.sglang.inside.blame import blame
from sgl_tune.asking.asking import way_out
from tests.ghost.told import arguments as server


def _runner(steps: str) -> tuple[str, ...]:
    return tuple(f"ModelRunner.{step}" for step in steps.split())


SCHEDULER = {"sglang.srt.managers.scheduler": ("Scheduler.__init__",)}
RUNNER = "sglang.srt.model_executor.model_runner"
NOW = {
    **SCHEDULER,
    RUNNER: _runner(
        "init_torch_distributed load_model alloc_memory_pool init_attention_backends init_cuda_graphs "
        "init_decode_cuda_graph"
    ),
    f"{RUNNER}_components.cuda_graph_setup": ("EagerRunner", "capture_prefill_graph", "capture_decode_graph"),
    "sglang.srt.model_executor.runner.base_runner": ("BaseRunner._flashinfer_autotune",),
}
EARLY = {
    **SCHEDULER,
    RUNNER: _runner(
        "init_torch_distributed load_model init_memory_pool init_attention_backend kernel_warmup "
        "_flashinfer_autotune init_device_graphs init_piecewise_cuda_graphs"
    ),
}


def step() -> str:
    return "done"


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """Modules of a server by name; other modules are not found."""
    made: dict[str, ModuleType] = {}

    class Server(dict[str, ModuleType]):
        def __call__(self, release: dict[str, tuple[str, ...]]) -> None:
            for name, places in release.items():
                module = ModuleType(name)
                for place in places:
                    *owner, last = place.split(".")
                    target: object = module
                    for part in owner:
                        if not hasattr(target, part):
                            setattr(target, part, type(part, (), {}))
                        target = getattr(target, part)
                    setattr(target, last, step)
                self[name] = module
                monkeypatch.setitem(sys.modules, name, module)

    yield Server(made)


def places(modules: dict[str, ModuleType]) -> set[str]:
    """The places whose step is watched."""
    found = set()
    for name, module in modules.items():
        for owner in (module, *(one for one in vars(module).values() if isinstance(one, type))):
            for attribute, value in vars(owner).items():
                if getattr(value, "__wrapped__", None) is step:
                    found.add(f"{name.rpartition('.')[2]}.{getattr(owner, '__name__', '')}.{attribute}")
    return found


def meter() -> watch.Meter:
    return watch.Meter(at_end=lambda name: None, at_begin=lambda name: None, at_death=lambda name: None)


@pytest.mark.parametrize(
    ("release", "decode"), [(NOW, "capture_decode_graph"), (EARLY, "init_device_graphs")]
)
def test_each_step_of_a_release_is_watched_once(
    modules: dict[str, ModuleType], release: dict[str, tuple[str, ...]], decode: str
) -> None:
    modules(release)  # type: ignore[operator]
    watch.install(meter())
    watched = places(modules)
    assert any(one.endswith(decode) for one in watched)
    assert not any(one.endswith("init_decode_cuda_graph") for one in watched)
    assert len(watched) == sum(map(len, release.values())) - (release is NOW)


@pytest.mark.parametrize("lost", ["load_model", "capture_prefill_graph"])
def test_a_step_that_a_release_lacks_is_named(modules: dict[str, ModuleType], lost: str) -> None:
    modules({name: tuple(one for one in steps if lost not in one) for name, steps in NOW.items()})  # type: ignore[operator]
    with pytest.raises(watch.MissingPoint, match=lost):
        watch.install(meter())


@pytest.mark.parametrize(
    ("arguments", "dp_rank"),
    [
        (server(tp_size=8), None),
        (server(dp_size=2, tp_size=1), 0),
        (server(tp_size=8, dp_size=8, enable_dp_attention=True), 5),
        (server(tp_size=8, dp_size=4, enable_dp_attention=True), 2),
        (server(tp_size=8, attn_dp_size=8, enable_dp_attention=True), 5),
    ],
)
def test_a_rank_has_the_place_the_launcher_gives_it(arguments: SimpleNamespace, dp_rank: int | None) -> None:
    rank = 5 % arguments.tp_size
    given = ranks.of(arguments, rank)
    assert (given["tp_rank"], given["gpu_id"], given["dp_rank"]) == (rank, rank, dp_rank)


def test_an_error_that_came_of_a_missing_modules_answer_names_the_function() -> None:
    def asks() -> object:
        honesty.inexact("module", "fused_moe.run", "it is not there")
        return None

    with pytest.raises(TypeError) as error:
        asks()[0]  # type: ignore[index]
    assert honesty.needed(error.value) is None  # the answer went to another function

    with pytest.raises(TypeError) as error:

        def uses() -> object:
            honesty.inexact("module", "fused_moe.run", "it is not there")
            nothing: Any = None
            return nothing[0]

        uses()
    assert honesty.needed(error.value) == "fused_moe.run"
    assert honesty.needed(ValueError("NoneType")) is None
    assert "modules fused_moe --build" in (way_out(blame(error.value) or "") or "")
    assert way_out("SGLang needs what sgl_kernel_jit_a.b answers") is None


def test_an_end_by_what_no_kernel_computed_is_not_the_servers() -> None:
    def reads(text: str) -> None:
        honesty.inexact("unread", "copy to the host", "bytes were read back that no kernel computed")
        raise IndexError(text)

    with pytest.raises(IndexError) as error:
        reads("index is out of bounds")
    assert "no kernel computed" in (blame(error.value) or "")
    assert blame(ImportError("DeepEP is not available")) is None  # nor is it in a server of this environment


def _runs_out(text: str) -> None:
    raise RuntimeError(text)


def _ends_again(text: str) -> None:
    """Behaves like a capture that fails: leaving it raises, too."""
    try:
        _runs_out("CUDA error: out of memory")
    finally:
        raise RuntimeError(text)


LATER = "the operation cannot be performed in the present state"
QUOTES = "Capture failed: CUDA error: out of memory. Possible solutions: none"


@pytest.mark.parametrize(("text", "told"), [(LATER, "CUDA error: out of memory"), (QUOTES, QUOTES)])
def test_a_start_dies_of_its_memory_and_one_that_quotes_it_keeps_its_words(text: str, told: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        _ends_again(text)
    found = watch.describe(caught.value)
    assert found["text"] == told
    assert found["stack"][-1].endswith(" _runs_out") and any("_ends_again" in one for one in found["stack"])


def test_any_other_error_is_told_as_it_is_with_the_calls_of_its_cause() -> None:
    def cause() -> None:
        raise ValueError("y")

    with pytest.raises(KeyError) as caught:
        try:
            cause()
        except ValueError as error:
            raise KeyError("x") from error
    found = watch.describe(caught.value)
    assert found["type"] == "KeyError" and found["stack"][-1].endswith(" cause")
