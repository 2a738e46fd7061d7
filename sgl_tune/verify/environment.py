"""The environment of the server that will read a cache, and how a file's own compares with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from runtime.flashinfer.versions import NEWEST, FlashInfer, doubt_of, flashinfer_of, number
from runtime.server.errors import ConfigError
from runtime.server.gpus import GpuModel, find_gpu
from sgl_tune.cache.loader import INDETERMINATE, Ignored, Mismatch
from sgl_tune.deployment.env import Fingerprint, take_fingerprint
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.versions import Gpu, local_model
from sgl_tune.errors import UsageError
from sgl_tune.reading import read_object
from sgl_tune.units import shown
from sgl_tune.verify.entries import cut
from sgl_tune.verify.findings import Finding, finding

_GPU_DEVICES = ("/dev/nvidiactl", "/dev/dxg")
_LONGEST = 4096  # characters of a version or of a GPU's name
_HOW = "write one with `sgl-tune env --format json` on the machine that serves"


class Target(NamedTuple):
    """The machine that serves, as --target names it in every command: GPUs, driver, SGLang and FlashInfer.

    `metadata` is None when nobody told: then a file is judged as if its own environment read it, but for the
    FlashInfer version, which the folder or a flag may tell, and the GPU, which `gpu` names."""

    metadata: Mapping[str, str] | None
    origin: str
    flashinfer: str | None = None
    arch: str | None = None
    driver: str | None = None
    gpu: str | None = None
    libraries: Mapping[str, str] = MappingProxyType({})  # by the names that stores' items say
    sglang: str | None = None
    gpus: tuple[Gpu, ...] = ()

    @property
    def gpu_name(self) -> str | None:
        """As its driver reports it."""
        told = self.gpus[0].name if self.gpus else (self.metadata or {}).get("gpu")
        return None if told in (None, *INDETERMINATE) else told

    @property
    def model(self) -> GpuModel | None:
        """What is known of its GPU, which may be one that only its own driver tells of."""
        if self.gpus:
            return local_model(self.gpus[0])
        try:
            return find_gpu(self.gpu_name) if self.gpu_name else None
        except ConfigError:
            return None

    def flags(self, flags: ServerFlags, image: str | None = None) -> ServerFlags:
        """The same flags for this machine: what they leave out is its own. `image`: the release that the
        command's image names."""
        if self.sglang and image and not flags.sglang_version and image != self.sglang:
            raise UsageError(
                f"{self.origin} is of SGLang {self.sglang}, and the server's image of {image}",
                "take `sgl-tune env` in the server's image",
            )
        gpu = flags.gpu or (None if flags.arch else self.gpu_name)
        return replace(flags, sglang_version=flags.sglang_version or self.sglang, gpu=gpu)

    def check_server(self, python: Path, flashinfer: str | None) -> None:
        """A start answers for the libraries that are in its own environment."""
        if self.flashinfer and flashinfer and self.flashinfer != flashinfer:
            raise UsageError(
                f"{self.origin} is of FlashInfer {self.flashinfer}, and the server {python} has {flashinfer}",
                "ask a server like the target's with --server, or none with --core",
            )

    def for_file(self, saved: Any) -> Mapping[str, str]:
        if self.metadata is not None:
            return self.metadata
        own = dict(own_environment(saved, self.reader(saved)))
        if self.flashinfer:
            own["flashinfer_version"] = self.flashinfer
        if self.gpu and not may_be(str(own.get("gpu")), self.gpu):
            own["gpu"] = f"NVIDIA {self.gpu}"
        return own

    def reader(self, saved: Any) -> FlashInfer:
        """The FlashInfer that reads a file with this `_metadata`."""
        return flashinfer_of(looking_up(saved, self))

    def in_folder(self, flashinfer: str | None) -> Target:
        """Whoever opens a version's folder runs that version."""
        return self if self.flashinfer or not flashinfer else self._replace(flashinfer=flashinfer)


UNTOLD = Target(None, "each file's own environment")  # where no --target is given


def own_environment(saved: Any, reader: FlashInfer) -> dict[str, str]:
    """The server a file was written for, as far as it says: what it says matches, what it leaves out or
    says in no string matches nowhere."""
    known = saved if isinstance(saved, dict) else {}
    return {
        name: known[name] if isinstance(known.get(name), str) else "a definite value"
        for name in reader.environment
    }


def looking_up(saved: Any, target: Target) -> str:
    """The FlashInfer version that will look a file's entries up: the newest where nothing says."""
    own = saved.get("flashinfer_version") if isinstance(saved, dict) else None
    version = target.flashinfer or own
    return version if isinstance(version, str) and number(version) else NEWEST.since


def may_be(reported: str, name: str) -> bool:
    """Whether a driver that reports this may mean that GPU, as far as it can be told."""
    try:
        return find_gpu(reported).name == find_gpu(name).name
    except ConfigError:
        return True


def target_here() -> Target:
    """A machine with a GPU and FlashInfer is taken for the one that serves; asking it takes seconds.
    Without a GPU FlashInfer would answer `unknown`, which tells nothing about any server."""
    if find_spec("flashinfer") is None or not any(Path(device).exists() for device in _GPU_DEVICES):
        return UNTOLD
    return target_of(take_fingerprint())


def target_of(here: Fingerprint) -> Target:
    if here.metadata is None:
        return UNTOLD
    return Target(
        here.metadata,
        "this machine",
        flashinfer=here.metadata.get("flashinfer_version"),
        arch=here.arch,
        driver=here.driver,
        libraries=here.libraries,
    )


def unknown_target_finding(target: Target) -> Finding:
    known = f"of the server only the GPU is known ({target.gpu})" if target.gpu else None
    return finding(
        "target-unknown",
        f"{known or 'no server is known to compare with'}: every file was judged as if it is read where it"
        " was tuned",
        "--target env.json, from `sgl-tune env --format json` on the machine that serves",
    )


def unread_versions(versions: Iterable[str]) -> Iterator[Finding]:
    for doubt in filter(None, map(doubt_of, versions)):
        yield finding("flashinfer-unknown", doubt, "a newer sgl-tune may know it; `warm` proves its files")


def read_target(path: Path) -> Target:
    """What `sgl-tune env --format json` printed there, or just the strings that FlashInfer writes there."""
    content = read_object(path, _HOW)
    metadata = content.get("metadata", content)
    strings = _environment_strings(path, metadata)
    return Target(
        metadata=strings,
        origin=str(path),
        flashinfer=strings["flashinfer_version"],
        arch=_text(content.get("arch")),
        driver=_text(content.get("driver")),
        libraries=_libraries(content.get("libraries")),
        sglang=_release(path, content.get("sglang")),
        gpus=tuple(_gpus(content.get("gpus"))),
    )


def _environment_strings(path: Path, metadata: Any) -> dict[str, str]:
    if not isinstance(metadata, dict):
        raise UsageError(f"{path}: `metadata` is not a JSON object", _HOW)
    names = flashinfer_of(str(metadata.get("flashinfer_version"))).environment
    for name in names:
        if not isinstance(metadata.get(name), str):
            raise UsageError(f"{path}: `{name}` is {shown(metadata.get(name))}, not a string", _HOW)
        if len(metadata[name]) > _LONGEST:
            raise UsageError(
                f"{path}: `{name}` has {len(metadata[name]):,} characters, and no environment more than"
                f" {_LONGEST:,}",
                _HOW,
            )
    return {name: metadata[name] for name in names}


def _libraries(told: Any) -> dict[str, str]:
    """None in what an older sgl-tune wrote."""
    members = told.items() if isinstance(told, dict) else ()
    return {name: version for name, version in members if isinstance(version, str)}


def _release(path: Path, told: Any) -> str | None:
    release = _text(told)
    if release is not None and not number(release):
        raise UsageError(f"{path}: `sglang` is {shown(release)}, and no release", _HOW)
    return release


def _gpus(told: Any) -> Iterator[Gpu]:
    for one in told if isinstance(told, list) else ():
        if isinstance(one, dict):
            name, arch, mib = one.get("name"), one.get("arch"), one.get("mib")
            if isinstance(name, str) and isinstance(arch, str) and isinstance(mib, int):
                yield Gpu(name[:_LONGEST], arch, mib, _text(one.get("uuid")) or "")


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def ignored_finding(outcome: Ignored) -> Finding:
    if outcome.hard:
        return finding(
            "other-environment",
            f"tuned elsewhere ({_fields(outcome.hard)}): the server ignores the whole file, tunes, and never"
            " saves here, at this start and every later one",
            "warm for this environment; remove the file if nobody else needs it",
        )
    return finding(
        "unknown-environment",
        f"its writer could not tell its environment ({_fields(outcome.soft)}): the server ignores the whole"
        " file, tunes, and replaces it",
        "warm again where the versions can be told",
    )


def _fields(mismatches: Mapping[str, Mismatch]) -> str:
    return ", ".join(
        f"{name}: file {_short(m.saved)}, server {_short(m.current)}" for name, m in mismatches.items()
    )


def _short(value: Any) -> str:
    if value is None:
        return "says nothing"
    return cut(value if isinstance(value, str) else repr(value))


def no_environment_finding() -> Finding:
    return finding(
        "no-environment",
        "it does not say where it was tuned, so any server loads it unchecked",
        "warm again: tactics of another FlashInfer or GPU may be slow, or fail",
    )


def other_driver(tuned_on: str | None, target: Target) -> list[Finding]:
    """FlashInfer does not record the driver; the manifest does."""
    if tuned_on is None or target.driver in (None, *INDETERMINATE) or tuned_on == target.driver:
        return []
    message = f"tuned on driver {tuned_on}, the server has {target.driver}; FlashInfer does not compare them"
    return [finding("other-driver", message, "warm again if the start shows slower kernels")]
