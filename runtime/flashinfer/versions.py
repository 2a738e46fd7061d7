"""FlashInfer's versions as their caches differ: one row per change in how files are written or read.

The rows follow the autotuner of the published wheels: `flashinfer/autotuner.py` up to 0.6.14, since then
`flashinfer/autotuner/autotuner.py`. `python -m tests.stock.flashinfer_versions` compares them with it.
"""

from functools import lru_cache
from typing import NamedTuple

from runtime.server.bounds import is_number

METADATA, RECORDS, GENERATION = "_metadata", "_records", "_generation"


@lru_cache
def number(version: str) -> tuple[int, ...]:
    """Return `0.7.2.post1` as (0, 7, 2), by which versions of FlashInfer and SGLang are compared."""
    parts: list[int] = []
    for piece in version.split("."):
        if not is_number(piece):
            break
        parts.append(int(piece))
    return tuple(parts[:3])


class FlashInfer(NamedTuple):
    """One row, valid from version `since` until the next row."""

    since: str
    # The members of `_metadata` about the machine. A loader compares only these.
    environment: tuple[str, ...]
    # Members of a file that are no entries; any other member is read as an entry.
    members: frozenset[str]
    # Keys have a fourth element, the call's options.
    has_extras: bool = True
    # `autotune` takes skip_ops.
    skips_ops: bool = False
    # A file of an unknown environment is replaced at the next save; one of another environment is never
    # overwritten. Before, a save merges into any file, and a `_metadata` that is no object crashes a load.
    tells_unknown: bool = False
    # Integer tactics of cuDNN runners are skipped; for this a runner that is no string is an AttributeError.
    skips_cudnn_indices: bool = False
    # An entry is used for the runner it names. Before, it was used for any, in doubt the first one.
    matches_runners: bool = False
    has_v2: bool = False
    # Entries record how they were measured, and tuning compares that.
    keeps_policies: bool = False


_SIX = (
    "flashinfer_version",
    "cuda_version",
    "cublas_version",
    "cudnn_version",
    "cudnn_frontend_version",
    "gpu",
)
_SEVEN = (*_SIX[:-1], "cutlass_dsl_version", "gpu")

_V0_6_11 = FlashInfer("0.6.11", _SIX, frozenset((METADATA,)), has_extras=False)
_V0_6_13 = _V0_6_11._replace(since="0.6.13", has_extras=True, skips_ops=True)
_V0_6_15 = _V0_6_13._replace(since="0.6.15", tells_unknown=True)
_V0_6_16 = _V0_6_15._replace(since="0.6.16", skips_cudnn_indices=True, matches_runners=True)
_V0_6_18 = _V0_6_16._replace(since="0.6.18", members=frozenset((METADATA, RECORDS, GENERATION)))
_V0_7_0 = _V0_6_18._replace(since="0.7.0", environment=_SEVEN, has_v2=True)
_V0_7_1 = _V0_7_0._replace(since="0.7.1", keeps_policies=True)
_V0_7_2 = _V0_7_1._replace(since="0.7.2")  # whose keys no longer name ranks
FLASHINFERS = (_V0_6_11, _V0_6_13, _V0_6_15, _V0_6_16, _V0_6_18, _V0_7_0, _V0_7_1, _V0_7_2)
NEWEST = FLASHINFERS[-1]
# The versions whose code was read. Every release of SGLang with a cache file pins one of them.
READ = (
    "0.6.11.post1", "0.6.12", "0.6.13", "0.6.14", "0.6.15.post1", "0.6.16", "0.6.17", "0.6.18",
    "0.7.0", "0.7.1", "0.7.2", "0.7.2.post1",
)  # fmt: skip
_READ_RELEASES = frozenset(map(number, READ))


@lru_cache
def flashinfer_of(version: str) -> FlashInfer:
    """Return the row of a version: the nearest older row, else the first; the newest if it is no version."""
    wanted = number(version)
    if not wanted:
        return NEWEST
    older = [row for row in FLASHINFERS if number(row.since) <= wanted]
    return older[-1] if older else FLASHINFERS[0]


def other_keys_of(version: str) -> str | None:
    """Return why no keys of this version are planned, or None if they are those of the newest."""
    if flashinfer_of(version) is NEWEST:
        return None
    return f"FlashInfer {version} writes other keys than {NEWEST.since}, which a server that has it tells"


def doubt_of(version: str) -> str | None:
    """Return a warning if this version's code has not been read, else None."""
    if number(version) in _READ_RELEASES:
        return None
    assumed = flashinfer_of(version).since
    return f"FlashInfer {version} is not known here: its files are taken to be as those of {assumed}"


# How a choice was measured, as FlashInfer writes it with a tactic; a lookup compares it.
Policy = tuple[str, int | None, str, str]
HOT: Policy = ("cuda_graph_profile_replays", None, "l2_cache_policy", "hot")
COLD: Policy = ("cuda_graph_profile_replays", 1, "l2_cache_policy", "cold")
