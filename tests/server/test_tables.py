"""The rows of the rules' tables: each word is one that its type names."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

import runtime.server.resolve
from runtime.server.decoders import known
from runtime.server.formats import kinds
from runtime.server.gpus import CPU, GPUS

_MODULES = (runtime.server.resolve, known, kinds)  # with all that they import


def _rows(value: Any) -> Iterator[Any]:
    if is_dataclass(value) and not isinstance(value, type):
        yield value
        for one in fields(value):
            yield from _rows(getattr(value, one.name))
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _rows(one)
    elif isinstance(value, (tuple, list)):
        if hasattr(value, "_fields"):
            yield value
        for one in value:
            yield from _rows(one)


def test_a_word_of_a_row_is_one_that_its_type_names() -> None:
    modules = [one for name, one in sys.modules.items() if name.startswith("runtime.server.")]
    rows = {id(row): row for one in modules for value in list(vars(one).values()) for row in _rows(value)}
    held = 0
    for row in rows.values():
        for name, hint in get_type_hints(type(row)).items():
            if get_origin(hint) is Literal:
                assert getattr(row, name) in get_args(hint), (name, row)
                held += 1
    assert held > 100


def test_the_bytes_of_a_gpu_are_those_of_its_source() -> None:
    told = {gpu.name: re.search(r"([\d.]+) GiB", gpu.source) for gpu in GPUS}
    found = {gpu.name: gpu.cuda_bytes for gpu in GPUS if gpu.cuda_bytes is not None and told[gpu.name]}
    assert {name: f"{count / (1 << 30):.2f}" for name, count in found.items()} == {
        name: one[1] for name, one in told.items() if one
    }


def test_a_cpu_has_no_memory_that_a_start_could_fill() -> None:
    assert (CPU.name, CPU.arch, CPU.memory_mib, CPU.usable_bytes) == ("CPU", "cpu", 0, 0)
