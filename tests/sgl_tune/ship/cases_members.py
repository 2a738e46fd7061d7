"""Members that lead out, pretend, repeat, hide or lie."""

from collections.abc import Callable
from functools import partial

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
    replaced,
    squeezed,
    tar,
)


def _first(name: str, content: bytes = b"x", **fields: bytes) -> bytes:
    part = member("x", content, name=name.encode(), **fields)
    return squeezed(part.head + padded(part.content) + tar(MANIFEST.to_bytes(), []))


HEADER, PLACE = "has a header that `pack` does not write", "stands where .* belongs"
LINK = {"kind": b"2", "link": b"/etc/passwd"}

CHANGES: dict[str, tuple[Change, str]] = {
    # kinds of members
    "a symbolic link": (instead(CU, member(CU, **LINK)), HEADER),
    "a link and a file through it": (instead(CU, member(KERNEL, **LINK), member(CU, b"x")), PLACE),
    "a character device": (instead(CU, member(CU, kind=b"3", devmajor=b"0000001\0")), HEADER),
    "a sparse file by extended header": (
        before(CU, extended(("GNU.sparse.major", "1"), ("GNU.sparse.realsize", "9999999999"))),
        PLACE,
    ),
    "a long name of GNU's": (before(CU, member("././@LongLink", b"x" * 200, kind=b"L").head), PLACE),
    "a global extended header": (before(CU, extended(("path", "x"), kind=b"g")), PLACE),
    "a file for a folder": (edited_at(KERNEL, name=KERNEL.encode(), kind=b"0"), HEADER),
    # links
    "a hard link outside": (edited_at(RANK1, link=b"/etc/shadow"), HEADER),
    "a hard link to another content": (edited_at(RANK1, link=CU.encode()), HEADER),
    "an equal file stored twice": (instead(RANK1, member(RANK1, b"{}")), HEADER),
    # extended headers
    "a path by extended header": (before(CU, extended(("path", "../../x"))), PLACE),
    "a size by extended header": (before(CU, extended(("size", "99999999999"))), PLACE),
    "an extended header of a megabyte": (before(CU, extended(raw=b"x" * (1 << 20))), PLACE),
    # names and order
    "a member twice": (added(member(CU, FILES[CU])), PLACE),
    "a member that nobody lists": (added(member("triton/x", b"y")), PLACE),
    "a second manifest": (added(member(NAME, MANIFEST.to_bytes())), PLACE),
    "a member that is missing": (instead(CU), PLACE),
    "members out of order": (lambda there: [*there[:-2], there[-1], there[-2]], PLACE),
    "a prefix": (edited_at(CU, name=CU.encode()[10:], prefix=b"deep_gemm"), PLACE),
    # fields
    "a set-uid bit": (edited_at(CU, mode=b"0004755\0"), HEADER),
    "a larger size": (edited_at(CU, size=b"00000777777\0"), HEADER),
    # contents
    "another content": (replaced(CU, lambda one: one._replace(content=b"// evil\n")), "another digest"),
}

CASES: dict[str, tuple[Callable[[], bytes], str]] = {
    **{name: (partial(changed, change), why) for name, (change, why) in CHANGES.items()},
    # the first member
    "no manifest": (
        lambda: squeezed(b"".join(p.head + padded(p.content) for p in parts_of(MANIFEST, FILES)) + END),
        PLACE,
    ),
    "an absolute first member": (lambda: _first("/etc/cron.d/x"), PLACE),
    "a first member that is a link": (lambda: _first(NAME, **LINK), HEADER),
    # padding and the end
    "bytes behind a file's end": (
        lambda: squeezed(PLAIN.replace(b"// code\n" + bytes(504), b"// code\n" + bytes(500) + b"evil")),
        "hidden behind its end",
    ),
    "bytes behind the tar's end": (partial(changed, list, END + b"x"), "follow the end of its tar"),
    "one block of zeros": (partial(changed, list, END[:512]), "cut off before the end"),
    "no end": (partial(changed, list, b""), "cut off"),
    "cut in a member": (lambda: squeezed(PLAIN[:-1600]), "cut off: its tar ends"),
}
