"""Tables of classes, each under the first release that has it so: a release has those of all before it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from runtime.server.backends import Number


def named_until(release: Number, table: Mapping[Number, str]) -> set[str]:
    return {*chain.from_iterable(names.split() for since, names in table.items() if since <= release)}
