"""What a start decides before it builds its model, from SGLang's own functions and its own runner.

At the end of a start the same functions are called with the runner that has its model.
"""

import copy
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from runtime.ghost.inside import honesty
from runtime.sglang.inside import tactic_files

ENDLESS = 1 << 40  # more tokens than any pool holds
RUNNERS = (
    ("sglang.srt.model_executor.model_runner", "ModelRunner"),
    ("sglang.srt.model_executor.runner.base_runner", "BaseRunner"),
)
SIZING = (
    ("sglang.srt.mem_cache.kv_cache_configurator", "KVCacheConfigurator"),
    ("sglang.srt.model_executor.model_runner_kv_cache_mixin", "ModelRunnerKVCacheMixin"),
)
MOST_REQUESTS = ("resolve_max_num_reqs", "_resolve_max_num_reqs")
GATE = "_should_run_flashinfer_autotune"
FILE = "_flashinfer_autotune_cache_path"
AUTOTUNE = "sglang.srt.model_executor.runner.flashinfer_autotune"
WHY_QUANT = "the checkpoint's own configuration of its weights could not be read, and is taken to be none"
WHY_MODEL = "the gate looks at the model's layers, which are not built yet"
Answer = dict[str, Any]


class MissingFunction(RuntimeError):
    """A release moved or renamed a function whose answer a record needs."""


def of(runner: Any, resolved: Any, title: str | None = None) -> Answer:
    """Return a record's `settled`. `resolved` are the server's arguments; `title` is the model as typed."""
    model, seen = runner.model_config, _Seen(runner)
    return {
        "config_class": type(model.hf_config).__name__,
        "dtype": _name(model.dtype),
        "kv_cache_dtype": _kv_cache_dtype(seen, resolved),
        "context_length": model.context_len,
        "attn_dp_size": seen.attn_dp_size,
        **_graphs(resolved, model.is_generation),
        "most_requests": _most_requests(seen),
        "gate": _gate(seen, title),
        "draft": _draft(seen, resolved, title),
    }


class _Seen:
    """A runner for SGLang's functions. Attributes that they or we set on it do not reach the real runner."""

    def __init__(self, runner: Any, **other: Any) -> None:
        self.__dict__.update(other, _runner=runner, model_runner=self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    @property
    def attn_dp_size(self) -> int:
        ranks = getattr(self._runner, "ps", None)
        if ranks is not None:
            return int(ranks.attn_dp_size)
        if hasattr(self._runner, "attn_dp_size"):
            return int(self._runner.attn_dp_size)
        return int(import_module("sglang.srt.runtime_context").get_parallel().attn_dp_size)

    @property
    def model(self) -> Any:
        return getattr(self._runner, "model", None) or _NotBuilt(self.model_config)

    @property
    def dtype(self) -> Any:
        return self.model_config.dtype

    @property
    def mambaish_config(self) -> None:
        """None, because the cache of states is sized only with the pool."""


class _NotBuilt:
    """Stands for the model of a runner that has none yet."""

    def __init__(self, config: Any) -> None:
        self._config = config

    @property
    def quant_config(self) -> Any:
        """The checkpoint's quantization, or None if SGLang reads none without the weights."""
        if self._config.quantization is None:
            return None
        loading = import_module("sglang.srt.configs.load_config").LoadConfig()
        read = import_module("sglang.srt.model_loader.weight_utils").get_quant_config
        try:
            return read(self._config, loading, {})
        except Exception as error:
            why = f"{WHY_QUANT} ({type(error).__name__}: {error})"
            honesty.inexact("unread", "model.quant_config", why[:500])
            return None

    def modules(self) -> Iterator[Any]:
        honesty.inexact("unread", "model.modules", WHY_MODEL)
        return iter(())


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _kv_cache_dtype(seen: _Seen, resolved: Any) -> str:
    """Return the dtype in the flag's words, or torch's name of it if the flag stays auto."""
    told = _Seen(seen, server_args=copy.copy(seen.server_args))
    type(seen._runner).configure_kv_cache_dtype(told)
    words = vars(told).get("kv_cache_dtype_str") or told.server_args.kv_cache_dtype
    return str(_name(told.kv_cache_dtype) if words == "auto" else words)


def _graphs(resolved: Any, generates: bool) -> Answer:
    """Return batch sizes and token counts. A model that generates nothing captures no decodes."""
    config = getattr(resolved, "cuda_graph_config", None)
    if config is not None:
        found = {name: _sizes(_field(config, name)) for name in ("decode", "prefill")}
    else:
        off, none = resolved.disable_cuda_graph, resolved.disable_piecewise_cuda_graph
        found = {
            "decode": [] if off else list(resolved.cuda_graph_bs or []),
            "prefill": [] if none else list(resolved.piecewise_cuda_graph_tokens or []),
        }
    return {"decode_graphs": found["decode"] if generates else [], "prefill_graphs": found["prefill"]}


def _sizes(phase: Any) -> list[int]:
    return [] if _field(phase, "backend") == "disabled" else list(_field(phase, "bs") or [])


def _field(config: Any, name: str) -> Any:
    """Return a member of the resolved config, which is a dict since 0.5.19."""
    return config[name] if isinstance(config, dict) else getattr(config, name)


def _most_requests(seen: _Seen) -> int:
    function = _method(SIZING, MOST_REQUESTS)
    tokens = [ENDLESS] * (function.__code__.co_argcount - 1)
    return int(function(seen, *tokens))


def _gate(seen: _Seen, title: str | None, draft: bool = False) -> Answer:
    try:
        module: Any = import_module(AUTOTUNE)
    except ImportError:
        tunes, naming = _method(RUNNERS, (GATE,))(seen), _method(RUNNERS, (FILE,))
    else:
        ask, naming = module.should_run_flashinfer_autotune, module.flashinfer_autotune_cache_path
        tunes = ask(seen, for_speculative_draft=True) if draft else ask(seen)
    cache = Path(import_module("sglang.srt.environ").envs.SGLANG_CACHE_DIR.get()).expanduser()
    file = tactic_files.of_model(naming, seen, title)
    return {"tunes": bool(tunes), "file": str(Path(file).relative_to(cache))}


def _draft(seen: _Seen, resolved: Any, title: str | None) -> Answer | None:
    """Return the gate of the draft model, or of the target's own draft layers; n-grams have no model."""
    algorithm = resolved.speculative_algorithm
    if not algorithm or algorithm == "NGRAM":
        return None
    configs = import_module("sglang.srt.configs.model_config").ModelConfig
    model = configs.from_server_args(
        seen.server_args,
        model_path=resolved.speculative_draft_model_path,
        model_revision=resolved.speculative_draft_model_revision,
        is_draft_model=True,
    )
    return _gate(_Seen(seen, is_draft_worker=True, model_config=model), title, draft=True)


def _method(places: tuple[tuple[str, str], ...], names: tuple[str, ...]) -> Callable[..., Any]:
    for module, owner in places:
        try:
            found = getattr(import_module(module), owner)
        except (ImportError, AttributeError):
            continue
        for name in names:
            if hasattr(found, name):
                method: Callable[..., Any] = getattr(found, name)
                return method
    raise MissingFunction(f"this release has none of {', '.join(names)}")
