"""Predict what the next start finds in its stores of compiled kernels, as each library looks items up."""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from runtime.flashinfer.versions import number
from runtime.server.gpus import find_gpu
from runtime.sglang.kept_files import KeptFiles, kept_files
from runtime.sglang.releases import NEWEST
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.stores.find import Stored
from sgl_tune.stores.item import Item, Kind, Setting
from sgl_tune.stores.offer import offer_path, offered_modules
from sgl_tune.stores.places import release_meant
from sgl_tune.stores.rows import CONFIGS
from sgl_tune.stores.sources import Sources, sources_here
from sgl_tune.units import count
from sgl_tune.verify.access import Access, User
from sgl_tune.verify.environment import Target, unknown_target_finding
from sgl_tune.verify.findings import FileReport, Finding, Severity, Verdict, VerifyReport, finding

RELOCATE = "sgl-tune relocate on the root, for the path that the server finds it under"
_AGAIN = "warm again, or prune it: sgl-tune prune --store"
_STALE = "warm again, or for FlashInfer's modules: sgl-tune relocate on the root"
_FATES: dict[Kind, tuple[str, Verdict, str]] = {
    "half-written": ("store-half-written", Verdict.REPLACED, _AGAIN),
    "moved": ("store-moved", Verdict.REPLACED, RELOCATE),
    "stale": ("store-stale", Verdict.REPLACED, _STALE),
    "kills": ("store-kills-start", Verdict.CRASH, "remove it, or what its message names"),
    "unread": ("not-readable", Verdict.CRASH, ""),
}
_READ = 4
_OTHER_TRITON = "it is taken, with a warning, where the server finds none for its own"


class Machine(NamedTuple):
    """The server's machine as far as it is known. Values that are None are not compared."""

    release: KeptFiles
    libraries: Mapping[str, str]
    arch: str | None = None
    python: str | None = None
    user: User | None = None
    place: str | None = None  # the folder's path for the server, if another
    sources: Sources | None = None


class StoreReport(NamedTuple):
    stored: Stored
    files: tuple[FileReport, ...]
    findings: tuple[Finding, ...]

    @property
    def store(self) -> str:
        return self.stored.store


def machine_of(flags: ServerFlags, target: Target, user: User | None, place: str | None) -> Machine:
    named = flags.target
    version = release_meant(named.sglang_version or target.sglang)
    release = kept_files(number(version))
    libraries = dict(target.libraries)
    flashinfer = named.flashinfer_version or target.flashinfer
    if flashinfer is None and named.sglang_version == NEWEST.version:
        flashinfer = NEWEST.flashinfer
    if flashinfer:
        libraries["flashinfer"] = flashinfer
    arch = named.arch or target.arch or (find_gpu(named.gpu).arch if named.gpu else None)
    is_here = place is None and target.origin == "this machine"
    libraries |= {"GPU": gpu} if (gpu := (target.metadata or {}).get("gpu")) else {}
    python = libraries.pop("python", None)
    return Machine(release, libraries, arch, python, user, place, sources_here() if is_here else None)


def verify_stores(found: Iterable[Stored], machine: Machine) -> list[StoreReport]:
    return [_verify(stored, machine) for stored in found]


def with_stores(report: VerifyReport, stores: Sequence[StoreReport], target: Target) -> VerifyReport:
    if not stores:
        return report
    files = (*report.files, *(file for one in stores for file in one.files))
    found = [*report.findings, *(found for one in stores for found in one.findings)]
    if target.metadata is None and all(one.code != "target-unknown" for one in found):
        found.insert(0, unknown_target_finding(target))
    return VerifyReport(files, tuple(found))


def _verify(stored: Stored, machine: Machine) -> StoreReport:
    access = Access(machine.user) if machine.user else None
    writable = not access.writing(stored.path) if access else os.access(stored.path, os.W_OK | os.X_OK)
    setting = Setting(
        stored.seen_at(machine.place),
        writable,
        is_here=machine.place is None,
        sources=machine.sources if stored.store == "tvm-ffi" else None,
        offered=offered_modules(stored) if stored.store == "flashinfer-jit" else frozenset(),
    )
    if stored.store == "driver":  # only this machine's start can judge it
        return StoreReport(stored, (), ())
    try:
        files = tuple(_judged(item, machine, access) for item in stored.items(setting))
    except OSError as error:
        message = f"it cannot be read ({error.strerror}), so its contents are unknown"
        return StoreReport(stored, (), (finding("not-readable", message, where=stored.path),))
    return StoreReport(stored, files, tuple(_of_the_store(stored, files, setting, machine)))


def _judged(item: Item, machine: Machine, access: Access | None) -> FileReport:
    elsewhere = for_another(item, machine)
    if elsewhere:
        return FileReport(item.path, Verdict.IGNORED, (elsewhere,), item.store)
    blocked = [*access.reading(item.path), *_closed(item, access.user)] if access else []
    if blocked:
        return FileReport(item.path, Verdict.CRASH, tuple(blocked), item.store)
    verdicts, findings = [Verdict.HIT], []
    for fault in item.faults:
        code, verdict, remedy = _FATES[fault.kind]
        is_found = fault.kind == "moved" and fault.still_there
        verdicts.append(Verdict.HIT if is_found else verdict)
        findings.append(finding(code, fault.message, remedy, Severity.WARNING if is_found else None))
    if item.size.odd:
        message = f"{', '.join(item.size.odd)}: no regular file, so it was not read"
        findings.append(finding("store-odd-file", message))
    worst = Verdict.CRASH if Verdict.CRASH in verdicts else verdicts[-1]
    return FileReport(item.path, worst, tuple(findings), item.store)


def _closed(item: Item, user: User) -> Iterator[Finding]:
    """Yield a finding if the user cannot read a file in an item whose folder is readable."""
    status = item.size.closed
    if status and not user.may(status, _READ):
        mode = stat.filemode(status.st_mode)
        message = f"{user.name} cannot read a file of it ({mode}, owner {status.st_uid}): a start dies of it"
        yield finding("not-readable", message, f"chmod -R a+rX {item.path}")


def for_another(item: Item, machine: Machine) -> Finding | None:
    """Return a finding if a server like `machine` never looks at the item."""
    for name, version in item.versions.items():
        wanted = machine.libraries.get(name)
        if wanted and wanted != version:
            fate = _OTHER_TRITON if (item.store, name) == (CONFIGS, "triton") else "it is not looked at"
            message = f"it is of {name} {version}, and the server has {wanted}: {fate}"
            return finding("store-other-version", message)
    built_for = map(_number, (item.arch or "").removeprefix("sm").split("_"))  # sm80_90a: for several at once
    if item.arch and machine.arch and _number(machine.arch) not in built_for:
        message = f"it is for {item.arch}, and the server has {machine.arch}: it is not looked at"
        return finding("store-other-arch", message)
    if item.python and machine.python and item.python != machine.python:
        message = f"it is for Python {item.python}, and the server has {machine.python}: it is not looked at"
        return finding("store-other-python", message)
    return None


def _number(arch: str) -> str:
    return arch.removeprefix("sm").rstrip("abcdefghijklmnopqrstuvwxyz")


def _of_the_store(
    stored: Stored, files: tuple[FileReport, ...], setting: Setting, machine: Machine
) -> Iterator[Finding]:
    if setting.offered:
        message = f"a package of the root offers FlashInfer {count(len(setting.offered), 'module')}"
        remedy = f"give the server PYTHONPATH={offer_path(stored, setting.place)}"
        yield finding("store-offered", message, remedy, where=stored.path)
    if setting.writable:
        return
    if stored.store == "flashinfer-jit":
        message = "FlashInfer writes a log below its folder when it is imported, and cannot write there"
        remedy = "give it another FLASHINFER_WORKSPACE_BASE: `sgl-tune relocate --scratch` prints one"
        yield finding("store-not-writable", message, remedy, Severity.WARNING, where=stored.path)
    lost = sum(file.verdict is Verdict.REPLACED for file in files)
    if lost:
        message = f"nothing can be written there, and {count(lost, 'item')} would be compiled again:"
        message += " a start that needs one of them dies of it, or compiles it each time"
        yield finding("store-not-writable", message, "repair the above first", where=stored.path)
    if stored.store == "deep-gemm" and machine.release.locks_deep_gemm and files:
        message = "nothing can be written there, and SGLang locks files there to pre-compile: a start dies"
        remedy = "SGLANG_JIT_DEEPGEMM_PRECOMPILE=0, or a writable folder whose `cache` is a link to it"
        yield finding("store-not-writable", message, remedy, where=stored.path)
    if stored.store == "tilelang":
        yield from _without_staging(stored)


def _without_staging(stored: Stored) -> Iterator[Finding]:
    """Yield a finding for a missing folder that TileLang creates at the first kernel, even if it writes
    none."""
    for kernels in sorted(stored.path.glob("*/*/kernels")):
        staging = kernels.parent / ".staging"
        if not staging.is_dir():
            message = f"{staging} is missing, and cannot be made: a start that uses TileLang dies of it"
            yield finding("store-not-writable", message, RELOCATE, where=stored.path)
