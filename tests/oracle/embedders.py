"""Which classes of SGLang's generate nothing, and which of the others take it that they are to embed, in each
release; and what a rank of the first holds: recorded for the tests.

python -m tests.oracle.embedders
"""

from __future__ import annotations

import argparse
import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runtime.server.embedders import BY_FLAG, OF_DECODERS
from runtime.server.releases import RELEASES
from tests.oracle.inside import run_inside
from tests.oracle.wheels import WORK, wheel_of
from tests.runtime.classless import CLASSLESS
from tests.runtime.families import make_reference
from tests.runtime.families.reference import config_json

RECORDED = Path(__file__).parent / "recorded/embedders.json"
PLACES, RELEASE = (1, 2), "0.5.23"
_FAMILIES = {
    "LlamaEmbeddingModel": "llama",
    "LlamaForSequenceClassification": "llama",
    "LlamaForSequenceClassificationWithNormal_Weights": "llama",
    "MistralModel": "mistral",
}


def main() -> None:
    options = argparse.ArgumentParser(
        prog="python -m tests.oracle.embedders", description=(__doc__ or "").partition(":")[0]
    )
    options.add_argument("--work", type=Path, default=WORK, help="where the wheels are kept")
    work = options.parse_args().work.absolute()
    forwards: dict[str, dict[str, str]] = {}
    for release in RELEASES:
        for name, how in sorted(_of_release(wheel_of(release.version, work).folder / "sglang/srt").items()):
            told = forwards.setdefault(name, {})
            if how != next(reversed(told.values()), None):
                told[release.version] = how
    files = [(name, tp) for name in sorted(OF_DECODERS | BY_FLAG) for tp in PLACES]
    lines = [
        json.dumps({"config": file_of(name) | _class_beside(name), "tp": tp, "rank": tp - 1})
        for name, tp in files
    ]
    answers = run_inside("read_held", wheel_of(RELEASE, work), "H200", work, lines, deadline=600)
    held: dict[str, list[int]] = {}
    for (name, _), (text, _) in zip(files, answers, strict=True):
        held.setdefault(name, []).append(text)
    rows = ",\n".join(f" {json.dumps(name)}: {json.dumps(told)}" for name, told in sorted(forwards.items()))
    RECORDED.write_text(f'{{"held": {json.dumps(held)},\n"forwards": {{\n{rows}\n}}}}\n')


def family_of(name: str) -> str:
    return _FAMILIES.get(name) or name.partition("For")[0].removesuffix("Model").lower()


def file_of(name: str, **changes: Any) -> dict[str, Any]:
    """A small model's, of that class."""
    told = config_json(make_reference(family_of(name), **changes))
    gelu = {"hidden_act": told["hidden_activation"]} if "hidden_activation" in told else {}  # as published
    size = {"classification_out_size": 5} if name == "LlamaForClassification" else {}
    return {**told, **gelu, **size, "architectures": [name], "dtype": "bfloat16"}


def _class_beside(name: str) -> dict[str, Any]:
    """Of a config.json that transformers has no class of."""
    told = {"hidden_act": "silu", "auto_map": {"AutoConfig": "configuration_told.ToldConfig"}}
    return told if family_of(name) in CLASSLESS else {}


def _of_release(srt: Path) -> dict[str, str]:
    """`never`, `pools`, `takes` or `ends`, by the forward of a class, or of what it is made of."""
    paths = sorted((srt / "models").rglob("*.py"))
    modules = {path: ast.parse(path.read_text(encoding="utf-8-sig")) for path in paths}
    classes = {path: {one.name: one for one in _classes(tree)} for path, tree in modules.items()}
    anywhere = {name: node for here in classes.values() for name, node in here.items()}

    def of(name: str, here: dict[str, ast.ClassDef]) -> str | None:
        node = here.get(name) or anywhere.get(name)
        if node is None:
            return None
        bases = (of(ast.unparse(one).rpartition(".")[2], here) for one in node.bases)
        return _forward(node) or next(filter(None, bases), None)

    never = set(_never((srt / "configs/model_config.py").read_text()))
    served = ((name, classes[path]) for path, tree in modules.items() for name in _served(tree))
    return {name: "never" if name in never else of(name, here) or "ends" for name, here in served}


def _classes(tree: ast.Module) -> Iterator[ast.ClassDef]:
    return (node for node in tree.body if isinstance(node, ast.ClassDef))


def _served(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EntryClass":
            yield from (one.id for one in ast.walk(node.value) if isinstance(one, ast.Name))


def _forward(node: ast.ClassDef) -> str | None:
    forward = next((one for one in node.body if getattr(one, "name", "") == "forward"), None)
    if not isinstance(forward, ast.FunctionDef):
        return None
    told = {one.arg for one in (*forward.args.args, *forward.args.kwonlyargs)}
    if "get_embedding" not in told and forward.args.kwarg is None:
        return "ends"
    return "pools" if "pooler" in ast.unparse(forward) else "takes"


def _never(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name == "is_generation_model":
            named = (one.value for one in ast.walk(node) if isinstance(one, ast.Constant))
            yield from (one for one in named if isinstance(one, str) and " " not in one)


if __name__ == "__main__":
    main()
