"""What a release's own pools hold of a model's tokens beside a draft, and of the draft's, on one rank.

Runs in the oracle's interpreter. Reads cases as read_any_pools does, each with the config.json of a draft, or
null where a layer of the model drafts, and the dtype of the draft's cache. DRAFT in its arguments is where
that file lies.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.oracle.inside import enter, keep_output
from tests.oracle.read_any_pools import USUAL, in_a_fork, made_by, rank_of, served, told_of, where_it_ends

_DRAFTLESS = ("NGRAM", "UNO")
_RUNNER = "model_executor/model_runner.py"
_COUNTED = ("eagle_draft_num_layers", "eagle_draft_swa_num_layers", "dflash_draft_num_layers")
_LAYERS = ("model_has_mtp_layers", "model_num_layers", "start_layer", "end_layer")


def main() -> None:
    enter()
    out = keep_output()
    _answer({**USUAL, "argv": ["--speculative-algorithm", "NGRAM"]})  # imported before the forks
    for line in sys.stdin:
        print(json.dumps(in_a_fork(_answer, json.loads(line))), file=out, flush=True)


def _answer(case: dict[str, Any]) -> dict[str, Any]:
    return answered(case, _pools)


def answered(case: dict[str, Any], read: Callable[[dict[str, Any], Any], dict[str, Any]]) -> dict[str, Any]:
    """What `read` makes of a case and of its server's arguments, while its draft's file is there."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            if case.get("draft"):
                (Path(folder) / "config.json").write_text(json.dumps(case["draft"]))
            argv = [folder if word == "DRAFT" else word for word in case["argv"]]
            with served({**case, "argv": argv}) as args:
                return read(case, args)
    except BaseException as error:
        return where_it_ends(error)


def _pools(case: dict[str, Any], args: Any) -> dict[str, Any]:
    without_copies()
    target, config, made = target_of(case, args)
    told = {**told_of(target, config, made), "backends": target.used}
    if not drafts_by_a_model(args):
        return {**told, "draft": 0}
    draft, held = draft_of(case, args, target, config, made)
    alone = SimpleNamespace(
        req_to_token_pool=held.req_to_token_pool,
        token_to_kv_pool=held.token_to_kv_pool,
        token_to_kv_pool_allocator=None,
    )
    kept = told_of(draft, config, alone)
    return {**told, "draft": kept["kept"], "classes": [*told["classes"], kept["classes"][0]]}


def target_of(case: dict[str, Any], args: Any) -> tuple[Any, Any, Any]:
    """A runner, its sizes, and whoever holds its pools."""
    from sglang.srt.configs.model_config import ModelConfig

    model = ModelConfig.from_server_args(args)
    target = rank_of(case, args, model)
    for name, value in _counted(target, args, model).items():
        object.__setattr__(target, name, value)
    return target, *made_by(target)


def drafts_by_a_model(args: Any) -> bool:
    from tests.oracle.release_start import _getter

    return _getter(args)("speculative_algorithm") not in (None, *_DRAFTLESS)


def draft_of(case: dict[str, Any], args: Any, target: Any, config: Any, made: Any) -> tuple[Any, Any]:
    """Its runner beside a target's pools, and whoever holds its own."""
    from sglang.srt.configs.model_config import ModelConfig

    from tests.oracle.release_start import _getter

    get = _getter(args)
    # As each worker of drafts does
    _tell(args, "context_length", target.model_config.context_len)
    path, revision = (get(f"speculative_draft_model_{name}", None) for name in ("path", "revision"))
    drafting = ModelConfig.from_server_args(
        args, model_path=path, model_revision=revision, is_draft_model=True
    )
    own = {
        "is_draft_worker": True, "memory_pool_config": config, "req_to_token_pool": made.req_to_token_pool,
        "token_to_kv_pool_allocator": made.token_to_kv_pool_allocator,
    }  # fmt: skip
    layers = _layers_of(drafting, target.spec_algorithm)
    draft = rank_of({**case, "dtype": case["draft_dtype"], "stage": layers}, args, drafting, **own)
    return draft, made_by(draft)[1]


def _tell(args: Any, name: str, value: Any) -> None:
    """Arguments that are settled may be a structure with a setter of its own."""
    try:
        object.__setattr__(args, name, value)
    except TypeError:
        from msgspec import Struct

        Struct.__setattr__(args, name, value)


def without_copies() -> None:
    """A pool beside drafts copies between its slots, and warms up the kernel that does; what states leave of
    drafted tokens is made on a GPU, whatever is asked."""
    import torch

    for name in ("zeros", "empty", "ones", "full", "arange"):
        make = getattr(torch, name)

        def made(*sizes: Any, _make: Any = make, **told: Any) -> Any:
            told.pop("pin_memory", None)
            return _make(*sizes, **{**told, "device": "meta"} if told.get("device") == "cuda" else told)

        setattr(torch, name, made)
    for module in ("memory_pool", "swa_memory_pool"):
        names = vars(importlib.import_module(f"sglang.srt.mem_cache.{module}")).values()
        for one in names:
            if isinstance(one, type) and hasattr(one, "_init_kv_copy_and_warmup"):
                one._init_kv_copy_and_warmup = lambda self: None


def _counted(rank: Any, args: Any, model: Any) -> dict[str, Any]:
    """How many of a draft's layers the target's pool leaves room for."""
    parts = "sglang.srt.model_executor.model_runner_components.spec_aux_hidden_state"
    try:
        settle = importlib.import_module(parts).resolve_spec_aux_hidden_state_config
    except ImportError:
        return _cut_counted(rank, args, model)
    found = settle(
        server_args=args, model_config=model, spec_algorithm=rank.spec_algorithm, is_draft_worker=False
    )
    return {"spec_aux_config": found, **_cell(rank, found)}


def _cell(rank: Any, found: Any) -> dict[str, Any]:
    """Of a token in a draft of blocks, where whoever makes pools settles it."""
    try:
        budget = importlib.import_module("sglang.srt.mem_cache.draft_kv_budget")
    except ImportError:
        return {}
    layers = getattr(found, "dflash_draft_num_layers", None)
    if layers is None:
        return {}
    cell = budget.resolve_dflash_draft_cell_size(
        draft_model_config=found.draft_model_config,
        draft_num_layers=layers,
        attn_tp_size=rank.draft_attn_tp_size,
    )
    return {"dflash_draft_cell_size_per_token": cell}


def _cut_counted(rank: Any, args: Any, model: Any) -> dict[str, Any]:
    from sglang.srt.configs.model_config import ModelConfig

    told = {
        "spec_algorithm": rank.spec_algorithm, "is_draft_worker": False, "model_config": model,
        "_build_model_config": ModelConfig.from_server_args, "server_args": args,
        **dict.fromkeys(_COUNTED),
    }  # fmt: skip
    runner = SimpleNamespace(**told)
    _run("__init__", lambda node: isinstance(node, ast.If) and "draft_num_layers" in ast.dump(node), runner)
    return {name: getattr(runner, name) for name in _COUNTED}


def _layers_of(model: Any, algorithm: Any) -> list[int]:
    """As a runner settles them of a draft whose class tells none."""
    setup = "sglang.srt.model_executor.model_runner_components.layer_setup"
    told = {"model": None, "model_config": model, "is_draft_worker": True}
    try:
        settle = importlib.import_module(setup).resolve_layer_indices
    except ImportError:
        found = SimpleNamespace(**told)
        _run("initialize", _settles_layers, found)
    else:
        if "spec_algorithm" in inspect.signature(settle).parameters:
            told["spec_algorithm"] = algorithm
        found = settle(**told)
    return [found.start_layer, found.end_layer]


def _settles_layers(node: ast.stmt) -> bool:
    names = _LAYERS[1:2] if isinstance(node, ast.If) else ("_nnpl", *_LAYERS)
    body = node.body if isinstance(node, ast.If) else [node]
    targets = [one for part in body if isinstance(part, ast.Assign) for one in part.targets]
    return any(getattr(one, "attr", getattr(one, "id", "")) in names for one in targets)


def _run(function: str, wanted: Any, runner: Any) -> None:
    """Those statements of a method whose module wants kernels."""
    spec = importlib.util.find_spec("sglang")
    assert spec is not None and spec.origin is not None
    tree = ast.parse((Path(spec.origin).parent / "srt" / _RUNNER).read_text())
    kind = next(one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == "ModelRunner")
    found = next(one for one in kind.body if isinstance(one, ast.FunctionDef) and one.name == function)
    names: dict[str, Any] = {"self": runner, "server_args": getattr(runner, "server_args", None)}
    names["ModelConfig"] = importlib.import_module("sglang.srt.configs.model_config").ModelConfig
    names["logger"] = SimpleNamespace(warning=print, info=print)
    exec(compile(ast.Module([*filter(wanted, found.body)], []), _RUNNER, "exec"), names)


if __name__ == "__main__":
    main()
