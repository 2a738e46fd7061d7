"""Finds SGLang's names of the tactic files of all ranks, by calling its own function for each rank.

A start is one rank, of a model in a folder that may differ from the one typed. The function that names the
file reads three numbers of the rank and the model's name; here it gets those of every rank.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from runtime.ghost.inside.stream import say
from runtime.sglang.inside import ranks

OWN, STORE = "flashinfer tactics of this rank", "flashinfer tactics of the ranks"
PLACES = (
    "sglang.srt.model_executor.runner.flashinfer_autotune:flashinfer_autotune_cache_path",
    "sglang.srt.model_executor.model_runner:ModelRunner._flashinfer_autotune_cache_path",
)
_PARTS = 6  # flashinfer/autotune/VERSION/ARCH/KEY/FILE
_HOLDERS = ("ps", "server_args")  # what of a runner holds such values
_FUNCTIONS = ("get_parallel", "get_model")  # later releases ask these of the same module
Values = dict[str, Any]
Naming = Callable[..., Any]


def watch(server: Any, model: str | None, folder: str | None = None) -> None:
    """Report the files of all ranks when SGLang names the first one. `model` is the name as typed.

    `folder` has the files that the start is to find, named for that model. If it is empty the start finds
    none; if it is None it finds whatever exists.
    """
    for place in PLACES:
        module, _, path = place.partition(":")
        try:
            owner: Any = import_module(module)
        except ImportError:
            continue
        *parents, last = path.split(".")
        for parent in parents:
            owner = getattr(owner, parent, None)
        naming = getattr(owner, last, None)
        if naming is not None:
            setattr(owner, last, _told(naming, server, model, folder))
            return


def _told(naming: Naming, server: Any, model: str | None, folder: str | None) -> Naming:
    handed: set[str] = set()

    @functools.wraps(naming)
    def name(runner: Any, *args: Any, **kwargs: Any) -> Any:
        own = naming(runner, *args, **kwargs)
        phase = "draft autotune" if getattr(runner, "is_draft_worker", False) else "autotune"
        say("file", store=OWN, path=str(own), found=False, phase=phase)
        if folder is not None and str(own) not in handed:
            handed.add(str(own))
            _hand_in(str(own), of_model(naming, runner, model), folder)
        for file in names(naming, runner, server, str(own), model):
            say("file", store=STORE, path=file, found=False, phase=phase)
        return own

    return name


def _hand_in(own: str, typed: str, folder: str) -> None:
    """Put the file in place of the one that an earlier start of the same process left."""
    there = Path(own)
    given = Path(folder, *Path(typed).parts[-_PARTS:])
    there.unlink(missing_ok=True)
    if folder and given.is_file():
        there.write_bytes(given.read_bytes())


def names(naming: Naming, runner: Any, server: Any, own: str, model: str | None = None) -> list[str]:
    """Return one name per rank; none if this rank's name is not among them, or two ranks have the same.

    Then each rank's name takes a start of its own, and the record says why.
    """
    everyone = list(all_ranks(server))
    try:
        found = [_name(naming, runner, rank) for rank in everyone]
        if own not in found:
            return _none("its own file is not among them")
        if len(set(found)) < len(found):
            return _none("two ranks have the same")
        if model is None:
            return found
        return [_name(naming, runner, {**rank, "model_path": model}) for rank in everyone]
    except Exception as error:  # a release that names files in another way
        return _none(f"{type(error).__name__}: {error}"[:500])


def _none(why: str) -> list[str]:
    say("lacks", what=STORE, why=why)
    return []


def of_model(naming: Naming, runner: Any, model: str | None) -> str:
    """Return this rank's file for the model as it was typed."""
    own = str(naming(runner))
    return own if model is None else _name(inspect.unwrap(naming), runner, {"model_path": model})


def _name(naming: Naming, runner: Any, values: Values) -> str:
    with _asked_for(naming, values):
        return str(naming(_Other(runner, values)))


def all_ranks(server: Any) -> Iterator[Values]:
    """Yield the numbers of each rank on every node, and of every replica of the server."""
    copies = 1 if server.enable_dp_attention else server.dp_size
    for copy in range(copies):
        for rank in range(server.tp_size * server.pp_size):
            numbers = ranks.of(server, rank)
            dp_rank = numbers["dp_rank"] if server.enable_dp_attention else copy
            yield {"tp_rank": numbers["tp_rank"], "pp_rank": numbers["pp_rank"], "dp_rank": dp_rank}


class _Other:
    """An object with other values for some attributes, also in the objects that it contains."""

    def __init__(self, thing: Any, values: Values) -> None:
        self._thing, self._values = thing, values

    def __getattr__(self, name: str) -> Any:
        if name in self._values:
            return self._values[name]
        value = getattr(self._thing, name)
        return _Other(value, self._values) if name in _HOLDERS else value


@contextmanager
def _asked_for(naming: Naming, values: Values) -> Iterator[None]:
    module = sys.modules.get(naming.__module__)
    real = {name: getattr(module, name) for name in _FUNCTIONS if hasattr(module, name)}
    try:
        for name, function in real.items():
            setattr(module, name, lambda function=function: _Other(function(), values))
        yield
    finally:
        for name, function in real.items():
            setattr(module, name, function)
