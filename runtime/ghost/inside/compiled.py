"""Lets `torch.compile` work as on a GPU, without kernels; its buffers and benchmarks take their memory."""

import functools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runtime.ghost.inside import honesty, small
from runtime.ghost.inside.hooks import after, around
from runtime.ghost.inside.library import library
from runtime.ghost.inside.values import extent, forget

HEURISTICS = "torch._inductor.runtime.triton_heuristics"


@after("torch._dynamo.trace_rules")
def _dynamo(rules: Any) -> None:
    """Let torch.compile skip our functions, which replace compiled code that it would not look into."""
    rules.SKIP_DIRS.append(f"{Path(__file__).parent.as_posix()}/")
    rules._recompile_re()


@after("torch._inductor.config")
def _inductor(config: Any) -> None:
    """Turn off launchers that need no Python, because they would load the kernel themselves."""
    for name in ("use_static_triton_launcher", "use_static_cuda_launcher"):
        if hasattr(config, name):
            setattr(config, name, False)


@around("torch._inductor.constant_folding", "ConstantFolder.run")
def _folding(run: Any, folder: Any) -> Any:
    """Compute constants for real: torch folds them and compiles code that depends on their values."""
    with small.again():
        return run(folder)


@around(HEURISTICS, "CachingAutotuner.copy_args_to_cpu_if_needed")
def _copy(copy: Any, tuner: Any, *args: Any, **kwargs: Any) -> Any:
    """Copy the tensors that a kernel changes to the host while it is timed."""
    with honesty.set_aside():
        return copy(tuner, *args, **kwargs)


@around(HEURISTICS, "CachingAutotuner.restore_args_from_cpu")
def _restore(restore: Any, tuner: Any, copies: Any) -> None:
    """Put them back."""
    kept = [tensor for tensor, _ in copies.values()]
    unreal = [tensor for tensor in kept if not library().marked(*extent(tensor))]
    restore(tuner, copies)
    forget(*unreal)


@after("torch")
def _torch(module: Any) -> None:
    real = module.compile

    def compile(model: Any = None, **options: Any) -> Any:
        if model is None:
            return lambda given: compile(given, **options)
        made = real(model, **options)
        return made if isinstance(made, module.nn.Module) else _aside(made, model)

    module.compile = compile


def _aside(compiled: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Run compiled functions with our dispatch mode off, because torch compiles nothing under a mode."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        _start_cold()
        with small.aside():
            result = compiled(*args, **kwargs)
        if small.runs():
            forget(*args, *kwargs.values(), result)
        return result

    # Code compiled around it looks into the function, as into one that torch compiled.
    run._torchdynamo_inline = function  # type: ignore[attr-defined]
    return run


@functools.cache
def _start_cold() -> None:
    """Give a start an empty compile cache: a kernel found in it would not be benchmarked."""
    folder = tempfile.mkdtemp(prefix="inductor-")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
