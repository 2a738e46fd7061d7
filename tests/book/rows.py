"""The rules' tables as they come out, row by row: of a release with all that it has from those before it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import MISSING, fields
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import runtime.server
import sgl_tune.keys
from runtime.server import architectures, family_backends, flashinfer
from runtime.server.backends import BACKENDS, SPREADS_EXPERTS, backend_row
from runtime.server.checks import ROWS
from runtime.server.decoders.known import FAMILIES
from runtime.server.decoders.wrappers import WRAPPERS
from runtime.server.flags import flags_of
from runtime.server.flags.effects import not_modelled, without_effect
from runtime.server.flags.spelling import name_of
from runtime.server.flashinfer import FLASHINFERS, doubt_of, flashinfer_of
from runtime.server.gpus import CPU, GPUS, GpuModel, arch_major, find_gpu, gpu_for
from runtime.server.releases import NEWEST, RELEASES, release_named
from runtime.server.stores import STORES, gathering, places
from runtime.server.version_number import number
from tests.book.plain import members, plain, told, whole

Row = tuple[str, Any]


def releases() -> Iterator[Row]:
    for release in RELEASES:
        for name in members(release):
            yield f"{release.version} {name}", whole(getattr(release, name))


def releases_named() -> Iterator[Row]:
    asked = (
        "0.5.11",
        "0.5.12",
        "0.5.12.post1",
        "0.5.17.dev3",
        "0.5.23rc1",
        "0.5.24",
        "0.6.0",
        "1.0",
        "main",
        "",
        None,
    )
    for version in asked:
        yield str(version), told(_named, version)


def _named(version: str | None) -> list[Any]:
    found = release_named(version)
    return [found.release.version, found.note, found.warning, found.release.flashinfer, number(version or "")]


def flashinfers() -> Iterator[Row]:
    for row in FLASHINFERS:
        for name in members(row):
            yield f"{row.since} {name}", whole(getattr(row, name))
    for version in (*flashinfer.READ, "0.6.0", "0.6.10", "0.6.14.post1", "0.7.3", "0.8.0", "1.0", "main"):
        yield f"row of {version}", [flashinfer_of(version).since, doubt_of(version)]


def backends() -> Iterator[Row]:
    for name in (*BACKENDS, "marlin"):
        row = backend_row(name)
        for one in fields(row):
            yield f"{name} {one.name}", plain(getattr(row, one.name))
    yield "spread", plain(SPREADS_EXPERTS)


def families() -> Iterator[Row]:
    """By their names in SGLang, and what a release makes of each."""
    for name, value in sorted(vars(architectures).items()):
        if not name.startswith("_") and isinstance(value, (frozenset, tuple, dict, str)):
            yield name, plain(value)
    found: dict[str, list[Any]] = defaultdict(list)
    for row in family_backends.FAMILY_BACKENDS:
        told_of = {one.name: plain(getattr(row, one.name)) for one in fields(row) if one.name != "when"}
        found[f"{row.backend} of {sorted(row.architectures)[0]}"].append(told_of)
    yield from found.items()


def defaults() -> Iterator[Row]:
    """Of each family's config class, and how a checkpoint calls its parts."""
    for name, family in FAMILIES.items():
        yield name, plain(family.defaults)


def wrappers() -> Iterator[Row]:
    """All that is told of a multimodal model but how its encoder is read."""
    for name, one in WRAPPERS.items():
        yield (
            name,
            {
                member.name: plain(getattr(one, member.name))
                for member in fields(one)
                if member.name != "weights"
            },
        )


def usual() -> Iterator[Row]:
    """What a field is that nobody sets, of every class of the rules."""
    for package in (runtime.server, sgl_tune.keys):
        for module in sorted(one.name for one in walk_packages(package.__path__, f"{package.__name__}.")):
            for name, one in sorted(vars(import_module(module)).items()):
                if isinstance(one, type) and one.__module__ == module and members(one):
                    told_of = {
                        member: whole(usual) for member, usual in members(one).items() if usual is not MISSING
                    }
                    yield f"{module}.{name}", told_of


def gpus() -> Iterator[Row]:
    for gpu in (*GPUS, CPU):
        named = {one.name: getattr(gpu, one.name) for one in fields(gpu) if one.name != "source"}
        yield gpu.name, {**named, "major": gpu.major, "usable": gpu.usable_bytes}
    words = ("h200", "NVIDIA H100 80GB HBM3", "h100-nvl", "a100 40gb", "A100-SXM4-80GB", "a100",
    "rtx pro 6000",
             "NVIDIA GeForce RTX 4090", "H300", "nothing like it", "", "gb", "B200 Blackwell")  # fmt: skip
    for word in words:
        yield f"find {word}", told(_found, word)
    archs = (None, "cpu", "sm90", "sm100", "sm120", "sm75", "sm9", "sm12345", "x", "sm", "sm103")
    here: tuple[tuple[GpuModel, ...], ...] = ((), (GPUS[5],), (GPUS[0],))
    for arch in archs:
        yield f"major of {arch}", arch_major(arch or "")
        for name in (None, "H100"):
            for mine in here:
                asked = f"{name} {arch} {[gpu.name for gpu in mine]}"
                yield asked, told(_chosen, name, arch, mine)


def _found(name: str) -> str:
    return find_gpu(name).name


def _chosen(name: str | None, arch: str | None, here: tuple[GpuModel, ...]) -> list[Any]:
    found = gpu_for(name, arch, here)
    return [found.gpu.name, found.gpu.arch, found.gpu.memory_mib, found.assumed]


def checks() -> Iterator[Row]:
    """In which releases each stands; what it looks at is in the deployments."""
    found: dict[str, list[Any]] = defaultdict(list)
    for row in ROWS:
        standing = [release.version for release in RELEASES if row.stands_in(release)]
        found[row.said].append(["by the server" if callable(row.way) else row.way, *_runs(standing)])
    yield from found.items()


def _runs(versions: list[str]) -> list[str]:
    known = [release.version for release in RELEASES]
    found: list[list[str]] = []
    for version in versions:
        if found and known.index(found[-1][-1]) + 1 == known.index(version):
            found[-1].append(version)
        else:
            found.append([version])
    return [f"{run[0]} to {run[-1]}" for run in found]


def arguments() -> Iterator[Row]:
    """What each release calls an argument that some rule reads, and what an unread one does."""
    for release in (RELEASES[0], RELEASES[8], NEWEST):
        line = flags_of(release.version)
        for name in (
            "cuda_graph_max_bs",
            "moe_runner_backend",
            "tp_size",
            "mamba_scheduler_strategy",
            "nothing_such",
        ):
            yield f"{release.version} {name}", name_of(release, name)
        yield f"{release.version} fields", len(line.by_field)
    for name, reason in sorted({**not_modelled(), **without_effect()}.items()):
        yield name, [reason, name in not_modelled(), name in without_effect()]


def stores() -> Iterator[Row]:
    for store in STORES:
        for name in members(store):
            yield f"{store.id} {name}", getattr(store, name)
    for release in RELEASES:
        for there in (
            (),
            tuple(store.id for store in STORES),
            ("flashinfer-jit", "flashinfer-cubins", "triton"),
        ):
            for scratch in (None, "/scratch"):
                said = gathering(release, "/root", there, scratch)
                yield f"{release.version} {len(there)} stores there, scratch {scratch}", said
        yield f"{release.version} at home", plain(places(release, {}, "/home/u", "u"))


def gathered() -> Iterator[Row]:
    """Below each variable by itself."""
    for release in (RELEASES[0], RELEASES[6], NEWEST):
        for name in sorted(
            {store.variable for store in STORES} | {"TRITON_HOME", "TMPDIR", "SGLANG_JIT_CACHE_DIR"}
        ):
            for value in ("~/x", "/x/", ""):
                found = places(release, {name: value}, "/home/u", "u")
                usual = places(release, {}, "/home/u", "u")
                yield (
                    f"{release.version} {name}={value}",
                    {id: list(at) for id, at in found.items() if at != usual[id]},
                )


ROWS_OF = {one.__name__: one for one in (
    releases, releases_named, flashinfers, backends, families, defaults, wrappers, usual, gpus, checks,
    arguments, stores, gathered,
)}  # fmt: skip
