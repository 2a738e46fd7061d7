"""One rank of a stock server's start, from its arguments to "ready", by SGLang's own code."""

import faulthandler
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr
from io import StringIO
from types import SimpleNamespace
from typing import Any

from runtime.baking.inside import aside, deep_gemm
from runtime.flashinfer.inside import environment, tuner
from runtime.folding.inside import running
from runtime.ghost.inside import benchmarks, honesty, small
from runtime.ghost.inside.stream import say
from runtime.moe_configs.inside import watch as configs
from runtime.sglang.inside import checks, memory_saver, outside, ranks, settled, tactic_files, watch, words
from runtime.sglang.inside.history import History

# Weights are random and no tokenizer is used, because the memory and time of a start depend on neither.
DUMMY = ("--load-format", "dummy", "--skip-tokenizer-init", "--grammar-backend", "none")
READY, REFUSED, DIED, OURS = 0, 2, 3, 4
ARGUMENTS, GATES = "arguments", "gates"  # where a request may ask a start to stop


def start(request: dict[str, Any]) -> None:
    """Run one request. It never returns: the process exits as the start did."""
    try:
        _log_to(request["log"])
        words.listen()
        with words.parsing() as parsed:
            server = _arguments(request["argv"])
        _run(request, server, parsed[-1])
    except BaseException:
        traceback.print_exc()
        say("broken", text=traceback.format_exc()[-2000:])
    _end(OURS)


def _log_to(path: str) -> None:
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.enable()


def _arguments(argv: list[str]) -> Any:
    """Return SGLang's arguments, resolved and checked. If SGLang refuses them, report its text and exit."""
    from sglang.srt.entrypoints import engine
    from sglang.srt.server_args import prepare_server_args

    said = StringIO()
    try:
        with redirect_stderr(said):
            server = prepare_server_args([*argv, *DUMMY])
        getattr(server, "resolve_once", lambda: None)()
        getattr(engine, "_set_envs_and_config", lambda _: None)(server)
        server.check_server_args()
    except SystemExit:
        say("refused", by="arguments", type="SystemExit", text=said.getvalue()[-2000:], stack=[])
        _end(REFUSED)
    except Exception as error:
        traceback.print_exc()
        say("refused", by="arguments", **watch.describe(error))
        _end(REFUSED)
    return server


def _resolved(server: Any) -> Any:
    """Return the resolved arguments: since 0.5.19 the object itself holds the unresolved ones."""
    fields = server.resolved_dict() if hasattr(server, "resolved_dict") else vars(server)
    return SimpleNamespace(**fields)


def _asked(resolved: Any, parsed: words.Parsed) -> dict[str, Any]:
    """Return the resolved arguments, those that the command sets, and defaults with another value."""
    arguments = words.plain(vars(resolved))
    given, defaults = words.plain(parsed.given()), words.plain(parsed.defaults(vars(resolved)))
    return {"arguments": arguments, "given": given, "defaults": defaults}


def _run(request: dict[str, Any], server: Any, parsed: words.Parsed) -> None:
    import torch
    from sglang.srt.managers import scheduler
    from sglang.srt.server_args import PortArgs

    ports, resolved, title = PortArgs.init_new(server), _resolved(server), request.get("title")
    charges = outside.Charges(request["outside"])

    def begin(phase: str) -> None:
        honesty.phase(phase)
        charges.begin(phase)

    history = History(request.get("snapshot"))

    def die(phase: str) -> None:
        charges.tell(phase)
        history.write()

    def before(phase: str, runner: Any) -> None:
        if request.get("until") == GATES and phase == "weights":
            _settle(runner, resolved, title)
            _stop(GATES)
        if request.get("fold") and not request.get("snapshot"):
            from runtime.folding.inside.fold import fold_layers

            fold_layers(getattr(runner, "model", None), _flags())

    meter = watch.Meter(charges.tell, begin, die, before, charges.least_free)
    asked = tuner.watch()
    watch.install(meter)
    configs.watch()
    given = request.get("tactics") or {}
    tactic_files.watch(resolved, title, given.get("folder", "") if request["ghost"] else None)
    environment.be(given.get("metadata", {}))
    os.environ.update(given.get("variables", {}))
    if request.get("baking"):
        aside.begin(**request["baking"])
    if request["ghost"]:
        benchmarks.hand_in(request["compiled"])
        ranks.install(resolved, charges.by_ranks("peers_"))
        checks.install()
        memory_saver.install()
        small.on()
        deep_gemm.watch()
    say("asked", rank=request["rank"], **_asked(resolved, parsed))
    if request.get("until") == ARGUMENTS:
        _stop(ARGUMENTS)
    have = {
        "server_args": server,
        "port_args": ports,
        "pipe_writer": _Pipe(meter, asked, history, lambda runner: _settle(runner, resolved, title)),
        **ranks.of(resolved, request["rank"]),
    }
    run = scheduler.run_scheduler_process
    parameters = inspect.signature(run).parameters
    missing = [name for name, one in parameters.items() if one.default is one.empty and name not in have]
    if missing:
        raise watch.MissingPoint(f"run_scheduler_process asks for {', '.join(missing)}: not known here")
    torch.cuda.set_device(have["gpu_id"])  # a reading before SGLang does so takes a context on the first GPU
    try:
        run(**{name: value for name, value in have.items() if name in parameters})
    except BaseException as error:
        if not meter.died:
            watch.say_died("start", error)
        traceback.print_exc()
    asked.tell()
    _end(DIED)


def _flags() -> Callable[[], list[Any]] | None:
    """Return what reads the flags that a layer sets for its parts; None in releases that keep them apart."""
    try:
        from sglang.srt.runtime_context import ForwardFlags, get_forward
    except ImportError:
        return None
    names = tuple(ForwardFlags._DEFAULTS)
    return lambda: [getattr(get_forward(), name) for name in names]


class _Pipe:
    """The pipe on which the scheduler tells its parent that it is ready, which ends the start."""

    def __init__(
        self, meter: watch.Meter, asked: tuner.Asked, history: History, settle: Callable[[Any], None]
    ) -> None:
        self._meter, self._asked, self._history, self._settle = meter, asked, history, settle

    def send(self, info: dict[str, Any]) -> None:
        scheduler = sys._getframe(1).f_locals["scheduler"]
        runner = scheduler.tp_worker.model_runner
        self._asked.tell()
        self._history.write()
        say(
            "ready",
            folded=running.skipped,
            kv_tokens=runner.max_total_num_tokens,
            max_running_requests=getattr(runner, "max_running_requests", None),
            mem_fraction_static=runner.mem_fraction_static,
            chunked_prefill_size=scheduler.chunked_prefill_size,
            context_length=runner.model_config.context_len,
            info=words.plain(info),
            **self._meter.readings(),
        )
        self._settle(runner)
        _end(READY)

    def close(self) -> None: ...


def _settle(runner: Any, resolved: Any, title: str | None) -> None:
    """Report what the start decided, after all measurements. If SGLang does not answer, report why."""
    try:
        say("settled", **settled.of(runner, resolved, title))
    except Exception as error:
        traceback.print_exc()
        say("lacks", what="settled", why=f"{type(error).__name__}: {error}"[:1000])


def _stop(where: str) -> None:
    say("stopped", phase=where)
    _end(READY)


def _end(code: int) -> None:
    aside.finish()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
