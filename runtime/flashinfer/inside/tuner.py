"""What FlashInfer's tuner is asked while it tunes and while it serves: keys, and the calls that ask."""

import functools
import sys
from typing import Any

from runtime.flashinfer.inside import calls, contexts
from runtime.flashinfer.inside.lookups import is_skipped, key_of, lookup_of
from runtime.folding.inside import running
from runtime.ghost.inside import honesty
from runtime.ghost.inside.stream import say

STORE = "flashinfer tactics"


class Asked:
    """Counts lookups per (mode, op, key). A call is reported if it looks up a key that none did before."""

    def __init__(self) -> None:
        self.profiled = 0
        self._keys: dict[tuple[str, str, str], list[int]] = {}
        self._tuned: set[str] = set()
        self._served: set[str] = set()
        self._files: set[str] = set()
        self._loaded, self._asking = "", set[str]()  # and the modules that asked

    def count(self, mode: str, op: str, key: str) -> list[int]:
        return self._keys.setdefault((mode, op, key), [0, 0])

    def tell(self) -> None:
        for (mode, op, key), (asked, profiled) in self._keys.items():
            say("key", mode=mode, op=op, key=key, asked=asked, profiled=profiled)
        self._keys.clear()
        for kind, name, where in sorted(honesty.said):
            module = where.partition(".py:")[0].replace("/", ".")
            is_silent = module.startswith("flashinfer.") and module not in self._asking
            if kind == "module" and is_silent and calls.speaks_of_tuner(module):
                honesty.inexact("tuner", module, f"{name} is not there, and nothing was asked without it")

    def look(self, mode: str, key: str, tuner: Any, op: str, runners: Any, config: Any, inputs: Any) -> None:
        """Record one lookup of the running call, or of none."""
        if mode == "serve" and (key in self._tuned or key in self._served):
            return
        lookup = lookup_of(tuner, op, runners, config, inputs)
        self._asking |= {type(runner).__module__ for runner in runners}
        keys = {one for _, one in lookup["keys"]}
        known = self._tuned if mode == "tune" else self._served
        is_new = not keys <= known
        known |= keys
        call = calls.current()
        if call is None:
            if is_new:
                self._say(mode, _caller(), {}, [lookup], "no public function of FlashInfer was called")
            return
        call.lookups.append(lookup)
        if is_new and not call.is_new:
            call.is_new, call.end = True, functools.partial(self._end, mode)
            call.describe()

    def _end(self, mode: str, call: calls.Open) -> None:
        why = f"it was given {', '.join(sorted(set(call.unknown)))}" if call.unknown else ""
        self._say(mode, call.name, call.told, call.lookups, why)

    def _say(
        self, mode: str, function: str, told: dict[str, Any], lookups: list[dict[str, Any]], why: str
    ) -> None:
        self._asking.add(f"flashinfer.{function.partition(':')[0]}")
        told = told or {"arguments": [], "named": {}, "storages": []}
        once = list({str(lookup): lookup for lookup in lookups}.values())
        cache = contexts.cache() or (self._loaded if mode == "tune" else "")
        more = {"contexts": contexts.stack(), "lookups": once, "unreplayable": why, "cache": cache}
        say("call", function=function, mode=mode, phase=honesty.current(), **told, **more)

    def file(self, path: Any, found: bool) -> None:
        self._loaded = str(path)
        if str(path) not in self._files:
            self._files.add(str(path))
            say("file", store=STORE, path=str(path), found=found, phase=honesty.current())


def watch() -> Asked:
    asked = Asked()
    try:
        from flashinfer.autotuner import AutoTuner
    except ImportError:
        return asked
    calls.watch()
    choose, profile = AutoTuner.choose_one, AutoTuner._profile_single_kernel

    @functools.wraps(choose)
    def choose_one(self: Any, op: str, runners: Any, config: Any, inputs: Any, **more: Any) -> Any:
        mode = "tune" if self.is_tuning_mode else "serve"
        key = key_of(self, op, runners[0], tuple(self._get_input_sizes(inputs)), config, inputs)
        counts = asked.count(mode, op, key)
        running.count(counts)
        if not is_skipped(self, op):
            asked.look(mode, key, self, op, runners, config, inputs)
        before = asked.profiled
        chosen = choose(self, op, runners, config, inputs, **more)
        counts[1] += asked.profiled - before
        return chosen

    @functools.wraps(profile)
    def profile_single_kernel(self: Any, *args: Any, **kwargs: Any) -> Any:
        asked.profiled += 1
        return profile(self, *args, **kwargs)

    setattr(AutoTuner, "choose_one", choose_one)  # noqa: B010
    setattr(AutoTuner, "_profile_single_kernel", profile_single_kernel)  # noqa: B010
    _watch_files(AutoTuner, asked)
    return asked


def _watch_files(tuner: Any, asked: Asked) -> None:
    load, save = tuner.load_configs, tuner.save_configs

    @functools.wraps(load)
    def load_configs(self: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
        accepted = load(self, path, *args, **kwargs)
        asked.file(path, bool(accepted))
        return accepted

    @functools.wraps(save)
    def save_configs(self: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
        asked.file(path, False)
        return save(self, path, *args, **kwargs)

    tuner.load_configs, tuner.save_configs = load_configs, save_configs


def _caller() -> str:
    """Return the outermost function of FlashInfer that is running."""
    here, found = sys._getframe(1), "?"
    while here is not None:
        module = here.f_globals.get("__name__", "")
        if module.startswith("flashinfer."):
            found = f"{module.removeprefix('flashinfer.')}:{here.f_code.co_name}"
        here = here.f_back  # type: ignore[assignment]
    return found
