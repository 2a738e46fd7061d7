"""Judge vLLM's files, one per rank. Before a rank loads its file, all ranks exchange what theirs are like.
From vLLM 0.33's `kernel_warmup.py` and `flashinfer_autotune_cache.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from runtime.flashinfer.versions import FlashInfer
from sgl_tune.cache.loader import Save, next_save
from sgl_tune.cache.rank_names import VllmRank, names_text, width_of
from sgl_tune.cache.record import BrokenCacheFile
from sgl_tune.cache.scan import vllm_fingerprint
from sgl_tune.units import count
from sgl_tune.verify.entries import some
from sgl_tune.verify.findings import CODES, FileReport, Finding, Verdict, finding
from sgl_tune.verify.ranks import LARGEST_GROUP

_ANEW = CODES["vllm-ranks-differ"].remedy


def looks_before_loading(names: Sequence[str]) -> bool:
    """Whether these are files of a vLLM release that reads a rank's file before FlashInfer loads it."""
    return any(VllmRank.parse(name) for name in names)


def broken_before_loading(
    error: BrokenCacheFile, raw: bytes, target: Mapping[str, str], reader: FlashInfer
) -> tuple[Verdict, str] | None:
    """Return what vLLM does with a file that crashes FlashInfer's loader; None if vLLM crashes too."""
    if error.exception in ("TypeError", "RecursionError"):
        return None
    saved = next_save(raw, target, reader)
    if isinstance(saved, Save):
        return Verdict.REPLACED, f"{error.what}: vLLM takes it for none, so all ranks tune, and replaces it"
    return Verdict.CRASH, f"{error.what}: vLLM tunes, and dies with {saved.exception} when it saves"


def settle_vllm(folder: Path, reader: FlashInfer, reports: dict[str, FileReport]) -> Iterator[Finding]:
    """Judge a folder's files, and add the ranks that lack a file to the reports."""
    ranks = {rank: name for name in reports if (rank := VllmRank.parse(name))}
    if not ranks:
        return
    for absent in _holes(list(ranks)):
        message = "there is no such file, so no rank of its group loads one: all of them tune"
        report = FileReport(folder / absent, Verdict.MISSING, (finding("rank-missing", message, _ANEW),))
        reports[absent] = report
    alike: dict[tuple[str, int] | None, list[str]] = {}
    for name in ranks.values():
        alike.setdefault(_told(name, reports), []).append(name)
    if len(alike) > 1:
        kinds = [
            f"{names_text(names)} {count(mark[1], 'member') if mark else 'unreadable'}"
            for mark, names in alike.items()
        ]
        message = (
            f"vLLM loads them only if all ranks report the same environment and size: {some(kinds)};"
            " ranks of several pipeline stages are compared a stage each, otherwise all of them tune"
        )
        yield finding("vllm-ranks-differ", message, where=folder)
    if ranks.keys() == {VllmRank(0, 0)} and reader.has_v2:
        message = "a vLLM server of one rank (0.33) reads FlashInfer's managed store and not this file"
        yield finding("vllm-one-rank", message, where=folder)


def _told(name: str, reports: dict[str, FileReport]) -> tuple[str, int] | None:
    file = reports[name].file
    if file is None:
        return None
    try:
        return vllm_fingerprint(file.document)
    except RecursionError:
        message = "nested too deep: vLLM dies with RecursionError before it loads it"
        found = (finding("nested-too-deep", message, _ANEW),)
        reports[name] = reports[name]._replace(verdict=Verdict.CRASH, findings=found)
        return None


def _holes(ranks: Sequence[VllmRank]) -> Iterator[str]:
    """Yield the missing files below the largest rank, if the other names show a replica's number of ranks."""
    known = {rank.rank: rank.dp for rank in ranks}
    largest = max(known)
    if largest >= LARGEST_GROUP:
        return
    if width := width_of(known):
        yield from (VllmRank(rank // width, rank).filename for rank in range(largest) if rank not in known)
