"""Between rows and the tables of a vocabulary, where these are narrower."""

from __future__ import annotations

from runtime.layers.linear import Linear, Part
from runtime.models.build import Build


def into_rows(build: Build) -> Linear | None:
    tables = build.model.tables
    if tables is None:
        return None
    return build.linear([Part(tables.into, slice(0, build.model.hidden_size))], slice(0, tables.width))


def out_of_rows(build: Build) -> Linear | None:
    tables = build.model.tables
    if tables is None:
        return None
    return build.linear([Part(tables.out, slice(0, tables.width))], slice(0, build.model.hidden_size))
