"""Manifests that are none, or lie."""

import json
from collections.abc import Callable
from typing import Any

from tests.sgl_tune.ship.forge import CACHE, CU, KERNEL, KEY, MANIFEST, RANK0, of_files, of_members, of_raw


def _named(path: str) -> bytes:
    """A manifest that lists a file under this name."""
    return of_files(lambda files: files.update({path: files.pop(CU)}))


def _rows(**members: Any) -> bytes:
    rows = json.loads(MANIFEST.to_bytes())["stores"]
    return of_members(stores=[{**rows[0], **members}])


def _also(path: str) -> bytes:
    """A manifest that lists a file once more, under this name."""
    return of_files(lambda files: files.update({path: files[CU]}))


def _told(at: int, value: object, path: str = CU) -> bytes:
    """A manifest that has another digest (0) or size (1) of a file."""
    return of_files(lambda files: files[path].__setitem__(at, value))


def _text(old: str, new: str) -> bytes:
    raw = MANIFEST.to_bytes()
    assert old.encode() in raw
    return of_raw(raw.replace(old.encode(), new.encode(), 1))


CASES: dict[str, tuple[Callable[[], bytes], str]] = {
    # the manifest
    "no JSON": (lambda: of_raw(b"import os"), "is not JSON"),
    "JSON that is no object": (lambda: of_raw(b"[]"), "not a JSON object"),
    "another schema": (lambda: of_members(schema_version=2), "schema_version is 2"),
    "a key twice": (lambda: _text('"at":', '"at":"/evil","at":'), "'at' stands in it twice"),
    "a file twice": (lambda: _text(f'"{CU}":', f'"{CU}":["{"0" * 64}",1],"{CU}":'), "stands in it twice"),
    "NaN": (lambda: _text('"entries":1', '"entries":NaN'), "holds NaN"),
    "infinity": (lambda: _text('"entries":1', '"entries":1e999'), "entries is not a number"),
    "5,000 digits": (lambda: _text('"entries":1', '"entries":' + "9" * 5000), "is not JSON|too long"),
    "nested deep": (lambda: of_raw(b"[" * 100_000 + b"]" * 100_000), "nested too deep"),
    "nested deep inside": (lambda: of_members(x=json.loads("[" * 90 + "]" * 90)), "nested too deep"),
    "a name of a megabyte": (lambda: _named("triton/" + "x" * (1 << 20)), "has more than 1000 letters"),
    "bytes that are no ASCII": (lambda: _text("sgl-tune 0", "sgl-tune é"), "no ASCII"),
    "a digest that is none": (lambda: _told(0, "md5"), "is no SHA-256"),
    "a negative size in it": (lambda: _told(1, -1), "has -1 bytes"),
    "a size that is no number": (lambda: _told(1, True), "not a digest and a size"),
    "files that are a list": (lambda: of_members(files=[CU]), "not a JSON object"),
    "an absolute name": (lambda: _named("/etc/ld.so.preload"), "is absolute, or leads out"),
    "a name above": (lambda: _named("triton/../../x"), "leads out"),
    "a dot": (lambda: _named("triton/./x"), "leads out"),
    "a backslash": (lambda: _named("triton\\..\\x"), "is no plain ASCII"),
    "a line break in a name": (lambda: _named("triton/a\nb"), "is no plain ASCII"),
    "a name that reads backwards": (lambda: _named("triton/\u202egnp.so"), "is no plain ASCII"),
    "a name 30 folders deep": (lambda: _named("triton" + "/x" * 30), "or 16 parts"),
    "a name of no store": (lambda: _named("bin/sh"), "lies in no store"),
    "a folder that is hidden": (lambda: _named("tilelang/.sgl-tune-0/kernel.cu"), "of sgl-tune's own"),
    "a module for PYTHONPATH": (lambda: _named("flashinfer-aot/torch/__init__.py"), "lies in no store"),
    "a lock of a cache": (lambda: _named(f"{CACHE}/.sgl-tune.lock"), "lies in no store"),
    "a store that never ships": (lambda: _named("nv/index"), "lies in no store"),
    "two names that differ by case": (
        lambda: _also(CU.replace("kernel.cu", "Kernel.cu")),
        "differ only by case",
    ),
    "a file that is a folder": (lambda: _also(KERNEL), "is a file and a folder"),
    "rank files of 100 MB": (lambda: _told(1, 100 << 20, RANK0), "more bytes than a cache file"),
    "a summary that lists another store": (lambda: _rows(store="triton"), "`stores` are not those"),
    "a summary that says no code": (lambda: _rows(executable=False), "said to hold no code"),
    "a summary without its stores": (lambda: of_members(stores=[]), "`stores` are not those"),
    "a store twice": (
        lambda: of_members(stores=json.loads(MANIFEST.to_bytes())["stores"] * 2),
        "`stores` are not those",
    ),
    "a cache of another key": (
        lambda: _text(f'"key":"{KEY}"', '"key":"0123456789abcdef"'),
        "describes another cache",
    ),
    "an empty folder outside": (lambda: of_members(folders=["../x"]), "leads out"),
    "300,000 folders": (
        lambda: of_files(
            lambda files: files.update({f"triton/{n}{'/x' * 9}/y": files[CU] for n in range(30_000)})
        ),
        "has more than 250,000 folders",
    ),
    "a place that is none": (lambda: of_members(at="relative"), "no absolute path"),
    "a place that leads out": (lambda: of_members(at="/x/../../y"), "no absolute path"),
    "a list for an environment": (lambda: _text('"environment":{}', '"environment":[]'), "environment is"),
    "files that it does not hold": (lambda: _also(f"{KERNEL}/more"), "`stores` are not those"),
}
