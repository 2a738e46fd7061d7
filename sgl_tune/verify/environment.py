"""The serving machine, how a cache file's own environment compares with it, and findings about both."""

import contextlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from runtime.flashinfer.versions import NEWEST, FlashInfer, flashinfer_of, number
from runtime.record.checked import WrongMember, from_plain
from runtime.server.errors import ConfigError
from runtime.server.gpus import GpuModel, find_gpu
from sgl_tune.cache.loader import INDETERMINATE, Ignored
from sgl_tune.deployment.options import ServerFlags, TargetFlags
from sgl_tune.deployment.versions import (
    Gpu,
    driver_version,
    installed_version,
    local_gpus,
    local_model,
    may_be,
    torch_gpus,
)
from sgl_tune.errors import UsageError
from sgl_tune.reading import read_object
from sgl_tune.servers.installed import installed_libraries, torch_version
from sgl_tune.units import shown
from sgl_tune.verify.entries import cut
from sgl_tune.verify.findings import Finding, finding

_GPU_DEVICES = ("/dev/nvidiactl", "/dev/dxg")
_LONGEST = 4096  # characters of a version or a GPU's name
_HOW = "write one with `sgl-tune env --format json` on the machine that serves"
ASK_THERE = "run `sgl-tune env` in the server's environment, on its GPU"
_OF_EVERY_SERVER = ("flashinfer_version", "gpu", "cuda_version")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A machine's description. `metadata`: None if FlashInfer cannot be asked. `unknown`: what could not
    be found out, in words."""

    metadata: dict[str, str] | None
    arch: str | None = None
    driver: str | None = None
    torch: str | None = None
    sglang: str | None = None
    gpus: tuple[Gpu, ...] = ()
    unknown: tuple[str, ...] = ()
    libraries: dict[str, str] = field(default_factory=dict)


def take_fingerprint() -> Fingerprint:
    """Describe this machine. torch and FlashInfer are imported, which takes seconds, because only they
    know what they would write."""
    unknown = []
    metadata = None
    try:
        with contextlib.redirect_stdout(sys.stderr):  # imports may print, and stdout is for data
            metadata = import_module("flashinfer.autotuner")._collect_metadata()
    except Exception as error:  # an exception of a broken installation is the answer
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        unknown.append(f"what FlashInfer would write: it cannot be imported here ({reason})")
    gpus = local_gpus() or torch_gpus()
    if not gpus:
        unknown.append("the GPU: no driver answers here, so a server elsewhere will see other values")
    if metadata and "unknown" in metadata.values():
        names = ", ".join(name for name, value in metadata.items() if value == "unknown")
        unknown.append(f"FlashInfer itself writes 'unknown' for {names}")
    arch = gpus[0].arch if gpus else None
    sglang, libraries = installed_version("sglang"), installed_libraries()
    return Fingerprint(
        metadata, arch, driver_version(), torch_version(), sglang, gpus, tuple(unknown), libraries
    )


class Target(NamedTuple):
    """The serving machine that --target names: GPUs, driver, SGLang and FlashInfer. `metadata`:
    FlashInfer's own strings; None if no target is named. Then each file is compared with its own
    environment, except for `flashinfer`, which the folder or a flag may give, and `gpu`, which --gpu
    gives. Flags typed beside --target replace its values."""

    metadata: Mapping[str, str] | None
    origin: str
    flashinfer: str | None = None
    arch: str | None = None
    driver: str | None = None
    gpu: str | None = None
    libraries: Mapping[str, str] = MappingProxyType({})  # by the names in stores' items
    sglang: str | None = None
    gpus: tuple[Gpu, ...] = ()

    @property
    def gpu_name(self) -> str | None:
        """Return the GPU's name as its driver reports it."""
        name = self.gpus[0].name if self.gpus else (self.metadata or {}).get("gpu")
        return None if name in INDETERMINATE else name

    @property
    def model(self) -> GpuModel | None:
        """Return the GPU's row in our table, or a row made from its driver's report."""
        if self.gpus:
            return local_model(self.gpus[0])
        try:
            return find_gpu(self.gpu_name) if self.gpu_name else None
        except ConfigError:
            return None

    @classmethod
    def of(cls, metadata: Mapping[str, str], origin: str, arch: str | None, **more: Any) -> "Target":
        """Return a named target. Its architecture is that of its GPU."""
        flashinfer = metadata.get("flashinfer_version")
        target = cls(metadata, origin, None if flashinfer in INDETERMINATE else flashinfer, **more)
        model = target.model
        return target._replace(arch=model.arch if model else None if arch in INDETERMINATE else arch)

    def flags(self, flags: ServerFlags, command: Sequence[str] = ()) -> ServerFlags:
        """Return the flags. SGLang and GPU, if they name none, come from the manifest, else this target."""
        from sgl_tune.deployment.launch import container_of

        named, container = flags.target, container_of(command)
        image = container.release if container else None
        if self.sglang and image and not named.sglang_version and image != self.sglang:
            message = f"{self.origin} is of SGLang {self.sglang}, and the server's image of {image}"
            raise UsageError(message, "run `sgl-tune env` in the server's image")
        gpu = named.gpu or (None if named.arch else self.gpu_name)
        if container and not named.arch:
            gpu = container.agreed_gpu(gpu)
        if self.metadata is not None and not (gpu or named.arch):
            raise UsageError(f"{self.origin} does not say its GPU", f"add --gpu, or {ASK_THERE}")
        return flags.changed(sglang_version=named.sglang_version or self.sglang, gpu=gpu)

    def typed(self, flags: TargetFlags) -> "Target":
        """Return this target with the values that these flags give."""
        gpu = find_gpu(flags.gpu) if flags.gpu else None
        return self._replace(
            flashinfer=flags.flashinfer_version or self.flashinfer,
            sglang=flags.sglang_version or self.sglang,
            arch=flags.arch or (gpu.arch if gpu else self.arch),
            gpu=gpu.name if gpu else self.gpu,
        )

    def check_server(self, python: Path, flashinfer: str | None) -> None:
        """Refuse a server whose FlashInfer is not the target's."""
        if self.flashinfer and flashinfer and self.flashinfer != flashinfer:
            raise UsageError(
                f"{self.origin} is of FlashInfer {self.flashinfer}, and the server {python} has {flashinfer}",
                "name a server like the target's with --server, or none with --server core",
            )

    @property
    def said(self) -> dict[str, str]:
        """Return the target's values of FlashInfer's fields. If a field that every server has is unknown,
        FlashInfer was not asked in the server's environment; then `unknown` is no value for any field."""
        told = dict(self.metadata or {})
        if any(told.get(name) in INDETERMINATE for name in _OF_EVERY_SERVER):
            told = {name: value for name, value in told.items() if value not in INDETERMINATE}
        if self.metadata is not None and self.gpu_name:
            told.setdefault("gpu", self.gpu_name)
        if self.flashinfer:
            told["flashinfer_version"] = self.flashinfer
        return told

    def for_file(self, saved: Any) -> dict[str, str]:
        """Return the environment in which a file is read. Fields that the target lacks are as in the file."""
        own, said = own_environment(saved, self.reader(saved)), self.said
        if self.gpu and not ("gpu" in said and may_be(said["gpu"], self.gpu)):
            said["gpu"] = own["gpu"] if may_be(own["gpu"], self.gpu) else f"NVIDIA {self.gpu}"
        return {name: said.get(name, value) for name, value in own.items()}

    def unsaid(self, saved: Any) -> tuple[str, ...]:
        """Return the fields that FlashInfer compares and that a named target does not give."""
        if self.metadata is None or not isinstance(saved, Mapping):
            return ()
        said = {**self.said, **({"gpu": self.gpu} if self.gpu else {})}
        equal = {name for name, value in self.metadata.items() if saved.get(name) == value}
        return tuple(
            name
            for name in self.reader(saved).environment
            if name not in said and name not in equal and saved.get(name) != "*"
        )

    def reader(self, saved: Any) -> FlashInfer:
        """Return the FlashInfer that reads a file with this `_metadata`."""
        return flashinfer_of(looking_up(saved, self))

    def in_folder(self, flashinfer: str | None) -> "Target":
        """Return this target. If none is named, it gets the FlashInfer of the folder that holds the file."""
        is_said = self.metadata is not None or self.flashinfer or not flashinfer
        return self if is_said else self._replace(flashinfer=flashinfer)


UNTOLD = Target(None, "each file's own environment")  # no --target given


def own_environment(saved: Any, reader: FlashInfer) -> dict[str, str]:
    """Return the environment for which a file was written. A field that it lacks, or that is no string,
    gets a value that matches nothing."""
    known = saved if isinstance(saved, dict) else {}
    return {
        name: known[name] if isinstance(known.get(name), str) else "a definite value"
        for name in reader.environment
    }


def looking_up(saved: Any, target: Target) -> str:
    """Return the FlashInfer version that will look up a file's entries; the newest if none is known."""
    own = saved.get("flashinfer_version") if isinstance(saved, dict) else None
    version = target.flashinfer or own
    return version if isinstance(version, str) and number(version) else NEWEST.since


def target_here() -> Target:
    """Return this machine as the target if it has a GPU and FlashInfer; that takes seconds. Without a GPU,
    FlashInfer would answer `unknown`, which says nothing about any server."""
    if find_spec("flashinfer") is None or not any(Path(device).exists() for device in _GPU_DEVICES):
        return UNTOLD
    return target_of(take_fingerprint())


def target_of(here: Fingerprint, origin: str = "this machine") -> Target:
    if here.metadata is None:
        return UNTOLD
    known = {name: getattr(here, name) for name in ("driver", "libraries", "gpus")}
    return Target.of(here.metadata, origin, here.arch, **known)


def read_target(path: Path) -> Target:
    """Read the output of `sgl-tune env --format json`, or a file with FlashInfer's strings alone."""
    content = read_object(path, _HOW)
    strings = content.get("metadata", content) or {}
    if not isinstance(strings, dict):
        raise UsageError(f"{path}: `metadata` is not a JSON object", _HOW)
    names = flashinfer_of(str(strings.get("flashinfer_version"))).environment
    metadata = {name: strings[name] for name in names if strings.get(name) is not None}
    try:
        told = from_plain(Fingerprint, {**content, "metadata": metadata}, str(path))
    except WrongMember as error:
        raise UsageError(str(error), _HOW) from None
    for value in (*metadata.values(), *(gpu.name for gpu in told.gpus)):
        if len(value) > _LONGEST:
            says = f"{path}: {len(value):,} characters, and no environment has more than {_LONGEST:,}"
            raise UsageError(says, _HOW)
    if told.sglang is not None and not number(told.sglang):
        raise UsageError(f"{path}: `sglang` is {shown(told.sglang)}, and no release", _HOW)
    if not metadata and not told.gpus:
        raise UsageError(f"{path} names neither an environment of FlashInfer nor a GPU", _HOW)
    return target_of(told, str(path))._replace(sglang=told.sglang)


def unknown_target_finding(target: Target) -> Finding:
    known = f"of the server only the GPU is known ({target.gpu})" if target.gpu else "no target is given"
    says = f"{known}: each file is judged as if the server matches the machine that tuned it"
    return finding("target-unknown", says)


def ignored_finding(outcome: Ignored) -> Finding:
    code, says, then = "unknown-environment", "its writer did not know its own environment", "replaces it"
    if outcome.hard:
        code, says = "other-environment", "tuned elsewhere"
        then = "never saves here, at this start and every later one"
    fields = ", ".join(
        f"{name}: file {_short(m.saved)}, server {_short(m.current)}"
        for name, m in (outcome.hard or outcome.soft).items()
    )
    return finding(code, f"{says} ({fields}): the server ignores the whole file, tunes, and {then}")


def unsaid_finding(names: Iterable[str], target: Target) -> Finding:
    named = " and ".join(names)
    message = f"the target does not say its {named}: whether the server loads the file is not known"
    return finding("target-silent", message, f"{ASK_THERE}; {target.origin} was written elsewhere")


def _short(value: Any) -> str:
    if value is None:
        return "says nothing"
    return cut(value if isinstance(value, str) else repr(value))


def other_driver(tuned_on: str | None, target: Target) -> list[Finding]:
    """Return a finding if the driver differs. FlashInfer does not record the driver, but the manifest
    does."""
    if tuned_on is None or target.driver in (None, *INDETERMINATE) or tuned_on == target.driver:
        return []
    message = f"tuned on driver {tuned_on}, the server has {target.driver}; FlashInfer does not compare them"
    return [finding("other-driver", message)]
