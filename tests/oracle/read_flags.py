"""Runs in the oracle's interpreter: prints a release's command line, an argparse action a line."""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import textwrap
from enum import Enum
from typing import Any

from tests.oracle.inside import enter, keep_output


def main() -> None:
    enter()
    out = keep_output()
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser(prog="sglang serve")
    ServerArgs.add_cli_args(parser)
    actions = [_plain(action) for action in parser._actions if "--help" not in action.option_strings]
    answer = {"actions": actions, "fields": _fields(ServerArgs), "renamed": renamed_fields(ServerArgs)}
    answer |= {"serve_takes_model": _serve_takes_model(), "graph_keys": _graph_keys()} | _config_file(parser)
    out.write(json.dumps(answer) + "\n")
    out.flush()


def _plain(action: argparse.Action) -> dict[str, Any]:
    return {
        "names": list(action.option_strings),
        "dest": action.dest,
        "action": type(action).__name__.strip("_"),
        "nargs": action.nargs,
        "type": getattr(action.type, "__name__", None),
        "choices": None if action.choices is None else plain_value(_ordered(action.choices)),
        "default": "==SUPPRESS==" if action.default is argparse.SUPPRESS else plain_value(action.default),
        "const": plain_value(getattr(action, "const_value", action.const)),
        "required": action.required,
        "instead": getattr(action, "new_flag", None),
        "refuses": getattr(action, "error_message", None),
    }


def _ordered(choices: Any) -> list[Any]:
    return sorted(choices, key=str) if isinstance(choices, (set, frozenset)) else list(choices)


def plain_value(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain_value(item) for item in _ordered(value)]
    if isinstance(value, dict):
        return {str(key): plain_value(item) for key, item in value.items()}
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _fields(record: Any) -> dict[str, Any]:
    """Every field with a default. `msgspec.Struct` and dataclass alike."""
    try:
        from sglang.srt.arg_groups.arg_utils import record_fields

        fields = record_fields(record)
    except ImportError:
        import dataclasses

        fields = dataclasses.fields(record)
    return {field.name: plain_value(_default(field)) for field in fields if _default(field) is not _NONE}


_NONE = object()


def _default(field: Any) -> Any:
    unset = ("_MISSING_TYPE", "NoDefault", "NODEFAULT")
    if not any(kind in (type(field.default).__name__, repr(field.default)) for kind in unset):
        return field.default
    if not any(kind in (type(field.default_factory).__name__, repr(field.default_factory)) for kind in unset):
        return field.default_factory()
    return _NONE


def renamed_fields(record: Any) -> dict[str, str]:
    """Where argparse's name is not the field's: `args.tp_size = args.tensor_parallel_size`."""
    source = textwrap.dedent(inspect.getsource(record.from_cli_args))
    found = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute):
            target = node.targets[0]
            if isinstance(target, ast.Attribute):
                found[node.value.attr] = target.attr
    return found


def _config_file(parser: argparse.ArgumentParser) -> dict[str, bool]:
    try:
        from sglang.srt.utils import server_args_config_parser as module
    except ImportError:
        from sglang.srt import server_args_config_parser as module
    merger = module.ConfigArgumentMerger(parser)
    words = merger._convert_config_to_args({"probe": {"key": None}})
    return {
        "config_dicts_are_json": words[-1] == '{"key": null}',
        "config_keys_are_names": hasattr(module, "_config_keys"),
    }


def _graph_keys() -> dict[str, list[str]]:
    try:
        from sglang.srt.model_executor.cuda_graph_config import ALLOWED_KEYS_PER_PHASE
    except ImportError:
        return {}
    return {str(phase): plain_value(keys) for phase, keys in ALLOWED_KEYS_PER_PHASE.items()}


def _serve_takes_model() -> bool:
    import importlib.util
    from pathlib import Path

    spec = importlib.util.find_spec("sglang")
    assert spec is not None and spec.origin is not None
    serve = Path(spec.origin).parent / "cli/serve.py"
    return serve.is_file() and "_normalize_positional_model_path" in serve.read_text()


if __name__ == "__main__":
    main()
