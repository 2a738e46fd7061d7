"""What a server's own start did with the rank files here: which it read and loaded, and what it tuned; and
what it compiles: the kernels and modules of its record that its stores do not hold."""

import base64
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from runtime.flashinfer.versions import number
from runtime.record.parts import Inexact, Module
from runtime.record.record import Record
from runtime.sglang.kept_files import kept_files
from sgl_tune.cache.layouts.cache import Cache
from sgl_tune.cache.layouts.find import caches_open
from sgl_tune.errors import CheckFailed
from sgl_tune.recorded.asked import Asked
from sgl_tune.recorded.caches import Reading, RecordedCache, files_of, readings_of
from sgl_tune.recorded.plan import RecordedPlan
from sgl_tune.stores.find import Stored
from sgl_tune.stores.places import release_meant
from sgl_tune.stores.readers.flashinfer import CUTE
from sgl_tune.stores.readers.tvm_ffi import LEAF
from sgl_tune.stores.rows import gathering, places
from sgl_tune.units import count, some
from sgl_tune.verify.entries import entry_name
from sgl_tune.verify.environment import UNTOLD as UNTOLD
from sgl_tune.verify.environment import Target
from sgl_tune.verify.expected import BY_ITSELF, WARM, Checked, Expected
from sgl_tune.verify.findings import Finding, Severity, Verdict, finding
from sgl_tune.verify.scope import check
from sgl_tune.verify.stores import Machine, verify_stores

# Seconds that a start on an H200's machine of 16 to 64 cores spent for each, one after the other.
SECONDS = {"triton": 0.6, "tvm-ffi": 5.0, "flashinfer-jit": 28.0, "cute": 1.2, "deep-gemm": 5.0}
_STORES = ("triton", "tvm-ffi", "flashinfer-jit", "deep-gemm")
_LONG = ("fused_moe",)  # FlashInfer compiles hundreds of files for one
_NEVER_KEPT = "flashinfer.norm.kernels."  # CuTe DSL's, compiled in every process


@dataclass(frozen=True, slots=True)
class Compiles:
    """What a start asks for, and of it what its stores lack, by store. `unknown`: kernels whose file names
    are not known here."""

    asked: int
    missing: Mapping[str, tuple[str, ...]]
    unknown: tuple[str, ...]

    @property
    def number(self) -> int:
        return sum(map(len, self.missing.values()))

    @property
    def long(self) -> tuple[str, ...]:
        return tuple(name for names in self.missing.values() for name in names if name.startswith(_LONG))

    @property
    def seconds(self) -> float:
        """Return about how long compiling takes, without what takes many minutes."""
        found = {store: len(names) for store, names in self.missing.items()}
        found["flashinfer-jit"] = found.get("flashinfer-jit", 0) - len(self.long)
        return sum(SECONDS[store] * many for store, many in found.items())

    @property
    def says(self) -> str:
        kernels = count(self.asked, "kernel")
        what = f"it would compile none of its {kernels}"
        if self.number:
            what = f"it would compile {self.number} of {kernels}, about {self.seconds:.0f} s"
        if self.long:
            what = f"{what} and many minutes for {', '.join(self.long)}"
        return f"{what}; not known for {len(self.unknown)}" if self.unknown else what

    def to_json(self) -> dict[str, Any]:
        return {
            "asked": self.asked,
            "missing": {store: list(names) for store, names in self.missing.items()},
            "seconds": round(self.seconds, 1),
            "unknown": list(self.unknown),
        }


def compiles(records: Sequence[Record], root: Path, arch: str, environment: Mapping[str, str]) -> Compiles:
    """Judge the stores below the root if it has any, else those that this user's variables name. `arch`: the
    server's GPU."""
    told = records[0].asked
    release = kept_files(number(release_meant(told.versions.get("sglang"))))
    home = environment.get("HOME") or str(Path.home())
    below = places(release, gathering(release, str(root.absolute())), home, "")
    is_root = any(Path(one).is_dir() for store in _STORES for one in below[store])
    stores = below if is_root else places(release, environment, home, os.environ.get("USER", ""))
    libraries = {"flashinfer": told.versions.get("flashinfer-python", "")}
    machine = Machine(release, libraries, arch, python=told.python.rpartition(".")[0])
    found = {store: list(_taken(store, stores[store], root, machine)) for store in _STORES}
    leaves = release.keys_kernels_by_content
    found["tvm-ffi"] = [path for path in found["tvm-ffi"] if path.name.startswith(LEAF) == leaves]
    asked, missing, unknown = 0, dict[str, list[str]](), list[str]()
    for store, name, is_there in _asked(records, found):
        asked += 1
        if is_there is None:
            unknown.append(name)
        elif not is_there:
            missing.setdefault(store, []).append(name)
    return Compiles(asked, {store: tuple(names) for store, names in missing.items()}, tuple(unknown))


def _taken(store: str, folders: Sequence[str], root: Path, machine: Machine) -> Iterator[Path]:
    """Yield what the next start takes from a store."""
    there = [path for one in folders if (path := Path(one)).is_dir()]
    stored = [Stored(store, path, root if path.is_relative_to(root) else path) for path in there]
    for report in verify_stores(stored, machine):
        yield from (file.path for file in report.files if file.verdict is Verdict.HIT)


def _asked(
    records: Sequence[Record], found: Mapping[str, Sequence[Path]]
) -> Iterator[tuple[str, str, bool | None]]:
    """Yield the store, the name, and whether it is there, of everything that some rank compiles, once."""
    triton, gemms = ({path.name for path in found[store]} for store in ("triton", "deep-gemm"))
    flashinfer = {path.name: path for path in found["flashinfer-jit"]}
    by_leaf = ((path, path.name.startswith(LEAF)) for path in found["tvm-ffi"])  # of either layout
    own = {path.parents[1].name if is_leaf else path.name.partition("__")[0] for path, is_leaf in by_leaf}
    for kernel in dict.fromkeys(one for record in records for one in record.kernels):
        if kernel.digest:
            key = base64.b32encode(bytes.fromhex(kernel.digest)).decode().rstrip("=")
            yield "triton", kernel.name, key in triton
        elif kernel.library == "deep-gemm":
            yield "deep-gemm", kernel.name, kernel.name in gemms
        else:
            yield "cute", kernel.name, _has_cute(kernel.name, flashinfer.values())
    for module in {one.name: one for record in records for one in record.modules}.values():
        if module.library == "flashinfer":
            yield "flashinfer-jit", module.name, module.name in flashinfer or _is_installed(module)
        elif module.library == "sglang":
            yield "tvm-ffi", module.name, module.name in own or _is_installed(module)


def _has_cute(name: str, modules: Iterable[Path]) -> bool | None:
    module, _, kernel = name.partition(".")
    if name.startswith(_NEVER_KEPT):
        return False
    if "." in kernel or not kernel:
        return None
    folders = (path for path in modules if path.name.startswith(f"{module}_") and path.name.endswith(CUTE))
    return any(_has_contents(folder / f"{kernel}.o") for folder in folders)


def _is_installed(module: Module) -> bool:
    """Whether the start found it in a package of the server; what a start itself makes is gone by now."""
    return Path(module.path).is_absolute() and _has_contents(Path(module.path))


def _has_contents(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


@dataclass(frozen=True)
class Served:
    """The answer of a server's own start. `plan`: None if the server does not start; then `ends` says why.
    `compiles`: what it compiles."""

    name: str
    versions: Mapping[str, str]
    plan: RecordedPlan | None
    readings: tuple[Reading, ...]
    checked: tuple[Checked, ...]
    ends: CheckFailed | None = None
    compiles: Compiles | None = None

    @property
    def is_idle(self) -> bool:
        return self.plan is not None and not self.plan.all_caches and not self.plan.unknown

    @property
    def inexact(self) -> tuple[Inexact, ...]:
        return self.plan.inexact if self.plan else ()

    @property
    def says(self) -> str:
        who = f"SGLang {self.versions.get('sglang')} was asked: its own start"
        if self.ends is not None:
            return f"{who} fails"
        compiles = f"; {self.compiles.says}" if self.compiles else ""
        if self.is_idle:
            return f"{who} tunes nothing{compiles}"
        ranks = [str(one.rank) for one in self.readings if one.profiled]
        what = f"would measure tactics (rank {', '.join(ranks)})" if ranks else "measured nothing"
        doubt = f"; not exact: {self.inexact[0].name}" if self.inexact else ""
        more = f" and {count(len(self.inexact) - 1, 'reason')} more" if len(self.inexact) > 1 else ""
        return f"{who} read the files and {what}{doubt}{more}{compiles}"

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(self._findings())

    def to_json(self) -> dict[str, Any]:
        return {
            "versions": dict(self.versions),
            "says": self.says,
            "ranks": [one.to_json() for one in self.readings],
            "exact": self.plan is not None and self.plan.exact,
            "inexact": [asdict(one) for one in self.inexact],
            "ends": self.ends.message if self.ends else None,
            "compiles": self.compiles.to_json() if self.compiles else None,
        }

    def _findings(self) -> Iterator[Finding]:
        if self.ends is not None:
            yield finding("server-ends", self.ends.message, self.ends.remedy or BY_ITSELF, where=self.name)
        elif self.is_idle:
            message = "its own start tunes nothing; it loads no cache, whatever files there are"
            yield finding("tunes-nothing", message, where=self.name)
        for what, why in self.plan.unknown if self.plan else ():
            message = f"{what}: not known: {why}"
            yield finding("not-planned", message, BY_ITSELF, Severity.ERROR, where=self.name)
        for one in self.readings:
            yield from self._of_rank(one)

    def _of_rank(self, one: Reading) -> Iterator[Finding]:
        words = f": {'; '.join(one.said)}" if one.said else ""
        for path in (path for path, taken in one.files.items() if taken is False):
            message = f"the server's own start does not take {PurePosixPath(path).name}{words}"
            yield finding("server-ignores", message, WARM, where=self.name)
        if one.profiled:
            named = some([entry_name(key) for key in one.profiled])
            message = f"rank {one.rank}: the server's own start would measure tactics: it asks for {named}"
            yield finding("server-profiles", f"{message}{words}", WARM, where=self.name)


def served(asked: Asked, target: Target) -> Served:
    """Start the ranks that may differ, each with its own rank file, and return what they did with it."""
    server = asked.question.server
    target.check_server(server.python, server.flashinfer)
    reading, root = asked.reading(target.said if target.metadata is not None else None), asked.whose.cache_dir
    settled = asked.settled()
    name, versions = asked.whose.name, settled.asked.versions
    try:
        plan = reading.plan()
    except CheckFailed as error:
        caches = tuple(check(cache, versions.get("sglang")) for cache in _caches(root, [settled]))
        return Served(name, versions, None, (), caches, error)
    checked = []
    for cache in plan.all_caches:
        expected = expected_of_record(cache)
        there = caches_open(root / cache.folder, root) or [expected.empty_cache(root)]
        checked.append(check(there[0], plan.sglang, True, [expected]))
    kernels = compiles(
        plan.records, root, asked.question.gpu.arch, {**os.environ, **asked.question.environment}
    )
    readings = readings_of(plan.records, reading.handed)
    return Served(name, versions, plan, readings, tuple(checked), compiles=kernels)


def _caches(root: Path, records: Sequence[Record]) -> Iterator[Cache]:
    folders = {
        PurePosixPath(name).parent for is_draft in (False, True) for name in files_of(records, is_draft)
    }
    for folder in sorted(folders):
        yield from caches_open(root / folder, root)[:1]


def expected_of_record(cache: RecordedCache) -> Expected:
    """Return all lookups of a recorded start, with the calls that a warm cannot make again."""
    return Expected.of(cache, cache.all_ops, WARM if not cache.left else BY_ITSELF)
