"""What a node's stores of compiled kernels come to, alone and beside those of a node that starts well."""

from __future__ import annotations

from collections.abc import Iterator

from sgl_tune.fleet.digests import missing, split
from sgl_tune.fleet.holdings import HeldStore, Holdings
from sgl_tune.fleet.outcome import Fault
from sgl_tune.fleet.take import MOST_NAMES
from sgl_tune.units import count

_AGAIN = "bring it there: sgl-tune pull, or start the server there once"


def store_faults(holdings: Holdings, reference: Holdings | None) -> Iterator[Fault]:
    for store in holdings.stores:
        yield from _own(store)
    for wanted in reference.stores if reference else ():
        if wanted.names:
            yield from _lacking(wanted, [one for one in holdings.stores if one.store == wanted.store])


def _own(store: HeldStore) -> Iterator[Fault]:
    total = store.found + store.built_again
    for told in store.findings:
        if told.severity == "error" and told.code in (
            "store-kills-start",
            "store-not-writable",
            "not-readable",
        ):
            yield Fault("fails", told.code, told.message, "sgl-tune verify on that machine", store.store)
    if store.built_again:
        code = next((told.code for told in store.findings if told.severity == "error"), "store-stale")
        why = f"{store.built_again:,} of {count(total, 'item')} in {store.path} would be compiled again"
        built = {store.store: store.built_again}
        yield Fault("compiles", code, why, "sgl-tune relocate on the root", store.store, built, total)


def _lacking(wanted: HeldStore, there: list[HeldStore]) -> Iterator[Fault]:
    names = "".join(sorted({one for store in there for one in split(store.names)}))
    lacks = missing(wanted.names, names, MOST_NAMES)
    if not lacks:
        return
    least = "at least " if wanted.found > MOST_NAMES else ""
    why = f"it lacks {least}{lacks:,} of {count(wanted.found, 'item')} that the target has"
    yield Fault(
        "compiles",
        "store-lacks",
        why,
        _AGAIN,
        wanted.store,
        {wanted.store: lacks},
        min(wanted.found, MOST_NAMES),
    )
