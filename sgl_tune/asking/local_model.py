"""A model's folder for a start: the one that is there, or one made of the config that is known here.

Weights are random and nothing is asked of a tokenizer, so a folder with a config.json is enough.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from runtime.sglang.flag_classes import MODELS
from sgl_tune.asking.question import Question, replaced, value_of
from sgl_tune.deployment.model_files import MODELOPT, Sought, find_files, hub_config
from sgl_tune.reading import bounded_bytes

_LARGEST = 16 << 20
_COPIED = (".json", ".py")
_ODD = re.compile(r"[^\w.-]+")
_MAIN = frozenset({"--model-path", "--model"})


def with_local_models(
    question: Question, named: str | None, work: Path, environ: Mapping[str, str]
) -> Question:
    """The same question with folders as its models. `named`: a config, or a preset, for the main one."""
    for flags in (_MAIN, MODELS - _MAIN):
        config = named if flags is _MAIN else None
        value = value_of(question.argv, sorted(flags))
        if value is None or (Path(value).is_dir() and config is None):
            continue
        # Some of SGLang's choices go by the name of a model's folder.
        folder = work / f"models{len(list(work.iterdir()))}" / _ODD.sub("-", value.strip("/").lstrip("."))
        folder.mkdir(mode=0o700, parents=True)
        _fill(folder, value, config, environ)
        flag = next(name for word in question.argv if (name := word.partition("=")[0]) in flags)
        question = replace(question, argv=replaced(question.argv, flags, [flag, str(folder)]))
    return question


def _fill(folder: Path, model: str, named: str | None, environ: Mapping[str, str]) -> None:
    cached = hub_config(model, environ) if named is None else None
    if cached is not None:
        _copy(cached.parent, folder)
        return
    found = find_files(Sought(model, config=Path(named) if named else None), environ)
    (folder / "config.json").write_text(json.dumps(dict(found.config)))
    if found.quantization:
        (folder / MODELOPT).write_text(json.dumps(dict(found.quantization)))


def _copy(snapshot: Path, folder: Path) -> None:
    """The configs and the model's own code, which are links in a hub's cache."""
    for file in sorted(snapshot.iterdir()):
        if file.suffix in _COPIED and stat.S_ISREG(file.stat().st_mode) and file.stat().st_size <= _LARGEST:
            (folder / file.name).write_bytes(bounded_bytes(file, _LARGEST))
