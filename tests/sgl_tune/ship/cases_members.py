"""Members that lead out, pretend, repeat, hide or lie."""

from __future__ import annotations

from collections.abc import Callable

from sgl_tune.ship.manifest import NAME
from sgl_tune.ship.members import END, padded
from tests.sgl_tune.ship.forge import (
    CU,
    FILES,
    KERNEL,
    MANIFEST,
    PLAIN,
    RANK1,
    Change,
    added,
    before,
    changed,
    edited_at,
    extended,
    instead,
    member,
    parts_of,
    squeezed,
    tar,
)


def _first(name: str, content: bytes = b"x", **fields: bytes) -> bytes:
    part = member("x", content, name=name.encode(), **fields)
    return squeezed(part.head + padded(part.content) + tar(MANIFEST.to_bytes(), []))


def _linked(link: str) -> Change:
    return edited_at(RANK1, link=link.encode())


HEADER, PLACE = "has a header that `pack` does not write", "stands where .* belongs"

CASES: dict[str, tuple[Callable[[], bytes], str]] = {
    # the first member
    "no manifest": (
        lambda: squeezed(b"".join(p.head + padded(p.content) for p in parts_of(MANIFEST, FILES)) + END),
        PLACE,
    ),
    "an absolute first member": (lambda: _first("/etc/cron.d/x"), PLACE),
    "a first member that is a link": (lambda: _first(NAME, kind=b"2", link=b"/etc/passwd"), HEADER),
    # kinds of members
    "a symbolic link": (lambda: changed(instead(CU, member(CU, kind=b"2", link=b"/etc/passwd"))), HEADER),
    "a link and a file through it": (
        lambda: changed(instead(CU, member(KERNEL, kind=b"2", link=b"/tmp"), member(CU, b"x"))),
        PLACE,
    ),
    "a character device": (
        lambda: changed(instead(CU, member(CU, kind=b"3", devmajor=b"0000001\0"))),
        HEADER,
    ),
    "a sparse file by extended header": (
        lambda: changed(
            before(CU, extended(("GNU.sparse.major", "1"), ("GNU.sparse.realsize", "9999999999")))
        ),
        PLACE,
    ),
    "a long name of GNU's": (
        lambda: changed(before(CU, member("././@LongLink", b"x" * 200, kind=b"L").head)),
        PLACE,
    ),
    "a global extended header": (lambda: changed(before(CU, extended(("path", "x"), kind=b"g"))), PLACE),
    "a file for a folder": (lambda: changed(edited_at(KERNEL, name=KERNEL.encode(), kind=b"0")), HEADER),
    # links
    "a hard link outside": (lambda: changed(_linked("/etc/shadow")), HEADER),
    "a hard link to another content": (lambda: changed(_linked(CU)), HEADER),
    "an equal file stored twice": (lambda: changed(instead(RANK1, member(RANK1, b"{}"))), HEADER),
    # extended headers
    "a path by extended header": (lambda: changed(before(CU, extended(("path", "../../x")))), PLACE),
    "a size by extended header": (lambda: changed(before(CU, extended(("size", "99999999999")))), PLACE),
    "an extended header of a megabyte": (lambda: changed(before(CU, extended(raw=b"x" * (1 << 20)))), PLACE),
    # names and order
    "a member twice": (lambda: changed(added(member(CU, FILES[CU]))), PLACE),
    "a member that nobody lists": (lambda: changed(added(member("triton/x", b"y"))), PLACE),
    "a second manifest": (lambda: changed(added(member(NAME, MANIFEST.to_bytes()))), PLACE),
    "a member that is missing": (lambda: changed(instead(CU)), PLACE),
    "members out of order": (lambda: changed(lambda there: [*there[:-2], there[-1], there[-2]]), PLACE),
    "a prefix": (lambda: changed(edited_at(CU, name=CU.encode()[10:], prefix=b"deep_gemm")), PLACE),
    # fields
    "a set-uid bit": (lambda: changed(edited_at(CU, mode=b"0004755\0")), HEADER),
    "a larger size": (lambda: changed(edited_at(CU, size=b"00000777777\0")), HEADER),
    # contents
    "another content": (
        lambda: changed(
            lambda there: [p._replace(content=b"// evil\n") if p.path == CU else p for p in there]
        ),
        "another digest",
    ),
    "bytes behind a file's end": (
        lambda: squeezed(PLAIN.replace(b"// code\n" + bytes(504), b"// code\n" + bytes(500) + b"evil")),
        "hidden behind its end",
    ),
    "bytes behind the tar's end": (
        lambda: changed(lambda there: there, end=END + b"x"),
        "follow the end of its tar",
    ),
    "one block of zeros": (lambda: changed(lambda there: there, end=END[:512]), "cut off before the end"),
    "no end": (lambda: changed(lambda there: there, end=b""), "cut off"),
    "cut in a member": (lambda: squeezed(PLAIN[:-1600]), "cut off: its tar ends"),
}
