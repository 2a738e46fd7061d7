"""The bytes of a shared library (64-bit ELF, little-endian): its needs of a machine, and its host half."""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from mmap import mmap
from typing import NamedTuple

Image = bytes | bytearray | mmap

GPU_CODE = frozenset({".nv_fatbin", ".nv_relfatbin", "__nv_relfatbin"})
# Each newer version is marked weak, on every machine, so that halves have equal bytes.
OLDEST_GLIBC = 28

_HEADER = struct.Struct("<4s5B7xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_NEED = struct.Struct("<HHIII")
_NEEDED_VERSION = struct.Struct("<IHHII")
_PAIR = struct.Struct("<QQ")

_LOAD, _DYNAMIC = 1, 2  # kinds of segments
_NOBITS = 8  # a section that has no bytes in the file
_NEEDED, _STRTAB, _SYMTAB, _HASH, _SONAME = 1, 5, 6, 4, 14
_GNU_HASH, _VERSYM, _VERNEED, _VERNEED_COUNT = 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFFE, 0x6FFFFFFF
_WEAK_VERSION, _WEAK_SYMBOL, _ANY_VERSION = 2, 2, 1
_GLIBC = re.compile(r"GLIBC_2\.(\d{1,3})(\.\d+)?")
_C23 = "__isoc23_"  # glibc 2.38's name for a function whose older form has the rest of the name


class NotALibrary(ValueError):
    """The file is not a shared library that this code can read, or a part of it is missing."""


class Segment(NamedTuple):
    kind: int
    offset: int
    address: int
    size: int


class Version(NamedTuple):
    """One version of one library that a module imports; `at` is the offset of its entry in the file."""

    number: int
    name: str
    is_weak: bool
    at: int
    library: str

    @property
    def glibc(self) -> int | None:
        """The minor number of a glibc version: 38 of GLIBC_2.38."""
        match = _GLIBC.fullmatch(self.name)
        return int(match[1]) if match else None


class Undefined(NamedTuple):
    """A symbol that another library must have; `at` is the offset of its entry in the file.

    `version_at` is the offset of its version's number, or 0 in a library without versions.
    """

    name: str
    is_weak: bool
    at: int
    version_at: int


@dataclass(frozen=True)
class Library:
    image: Image

    @cached_property
    def machine(self) -> int:
        return int(self._header[7])

    @cached_property
    def gpu_code(self) -> tuple[tuple[int, int], ...]:
        """Return the offset and size of each section with GPU code."""
        return tuple(
            (offset, size)
            for name, kind, offset, size in self._sections()
            if name in GPU_CODE and kind != _NOBITS and size
        )

    @cached_property
    def loaded_size(self) -> int:
        """The length of the file up to the last byte that a loader maps."""
        return max(one.offset + one.size for one in self._segments if one.kind == _LOAD)

    @property
    def needed(self) -> tuple[str, ...]:
        """The names of the libraries that it is linked to."""
        return tuple(self._string(value) for tag, value in self._dynamic if tag == _NEEDED)

    @cached_property
    def versions(self) -> tuple[Version, ...]:
        return tuple(self._versions())

    def undefined(self) -> Iterator[Undefined]:
        symbols, versions = self._place(_SYMTAB), self._place(_VERSYM)
        for index in range(1, self._symbol_count()):
            name, info, _, section, _, _ = _SYMBOL.unpack_from(self.image, symbols + index * _SYMBOL.size)
            if not section and name:
                is_weak = info >> 4 == _WEAK_SYMBOL
                at = symbols + index * _SYMBOL.size
                yield Undefined(self._string(name), is_weak, at, versions and versions + 2 * index)

    def defined(self) -> frozenset[str]:
        """Return the names that it exports. This needs the section table, which a host half does not have."""
        symbols = self._place(_SYMTAB)
        size = next((size for name, _, _, size in self._sections() if name == ".dynsym"), 0)
        found = (_SYMBOL.unpack_from(self.image, symbols + at) for at in range(0, size, _SYMBOL.size))
        return frozenset(self._string(name) for name, _, _, section, _, _ in found if section and name)

    def version_of(self, symbol: Undefined) -> Version | None:
        if not symbol.version_at:
            return None
        number = struct.unpack_from("<H", self.image, symbol.version_at)[0] & 0x7FFF
        return next((one for one in self.versions if one.number == number), None)

    @cached_property
    def _header(self) -> tuple[int, ...]:
        if len(self.image) < _HEADER.size or bytes(self.image[:4]) != b"\x7fELF":
            raise NotALibrary("it is no 64-bit ELF shared library")
        header = _HEADER.unpack_from(self.image, 0)
        if header[1:3] != (2, 1) or header[6] != 3:
            raise NotALibrary("it is no 64-bit ELF shared library")
        return header

    @cached_property
    def _segments(self) -> tuple[Segment, ...]:
        at, count = self._header[10], self._header[15]
        found = [_SEGMENT.unpack_from(self.image, at + index * _SEGMENT.size) for index in range(count)]
        segments = tuple(
            Segment(kind, offset, address, size) for kind, _, offset, address, _, size, _, _ in found
        )
        if any(one.offset + one.size > len(self.image) for one in segments):
            raise NotALibrary("it is cut off")
        if not any(one.kind == _LOAD for one in segments):
            raise NotALibrary("nothing in it would be loaded")
        return segments

    def _sections(self) -> Iterator[tuple[str, int, int, int]]:
        """Yield name, kind, offset and size of each section. A host half has no sections."""
        at, count, names = self._header[11], self._header[17], self._header[18]
        found = [_SECTION.unpack_from(self.image, at + index * _SECTION.size) for index in range(count)]
        for name, kind, _, _, offset, size, *_ in found:
            if kind != _NOBITS and offset + size > len(self.image):
                raise NotALibrary("it is cut off")
            yield _text(self.image, found[names][4] + name), kind, offset, size

    @cached_property
    def _dynamic(self) -> tuple[tuple[int, int], ...]:
        segment = next((one for one in self._segments if one.kind == _DYNAMIC), None)
        if segment is None:
            raise NotALibrary("it has no dynamic section")
        steps = range(segment.offset, segment.offset + segment.size - _PAIR.size + 1, _PAIR.size)
        return tuple(_PAIR.unpack_from(self.image, at) for at in steps)

    def _place(self, tag: int) -> int:
        """Return the file offset of the thing whose address `tag` has, or 0 if there is none."""
        address = next((value for found, value in self._dynamic if found == tag), 0)
        if not address:
            return 0
        for one in self._segments:
            if one.kind == _LOAD and one.address <= address < one.address + one.size:
                return address - one.address + one.offset
        raise NotALibrary(f"its dynamic section leads to {address:#x}, which is not in the file")

    def _string(self, offset: int) -> str:
        return _text(self.image, self._place(_STRTAB) + offset)

    def _symbol_count(self) -> int:
        """Return a number of symbols that includes all undefined ones, which come before the hashed ones."""
        if at := self._place(_GNU_HASH):
            return int(struct.unpack_from("<II", self.image, at)[1])
        if at := self._place(_HASH):
            return int(struct.unpack_from("<II", self.image, at)[1])
        return 0

    def _versions(self) -> Iterator[Version]:
        at = self._place(_VERNEED)
        count = next((value for tag, value in self._dynamic if tag == _VERNEED_COUNT), 0)
        for _ in range(count if at else 0):
            _, many, file, first, following = _NEED.unpack_from(self.image, at)
            entry = at + first
            for _ in range(many):
                _, flags, number, name, after = _NEEDED_VERSION.unpack_from(self.image, entry)
                is_weak = bool(flags & _WEAK_VERSION)
                yield Version(number, self._string(name), is_weak, entry, self._string(file))
                entry += after
            at += following


def _text(image: Image, at: int) -> str:
    end = image.find(b"\0", at)
    if end < 0:
        raise NotALibrary("a name in it has no end")
    return bytes(image[at:end]).decode("utf-8", "replace")


def host_half(image: Image) -> bytearray:
    """Return the library without its GPU code, and without entries that require a newer glibc than it needs.

    Equal libraries give equal bytes on every machine.
    """
    try:
        return _half(image)
    except (struct.error, IndexError, OverflowError) as error:
        raise NotALibrary("it is cut off or damaged") from error


def _half(image: Image) -> bytearray:
    library = Library(image)
    half = bytearray(image[: library.loaded_size])
    for offset, size in library.gpu_code:
        inside = max(0, min(size, len(half) - offset))
        half[offset : offset + inside] = bytes(inside)
    for symbol in library.undefined():
        if symbol.name.startswith(_C23):
            name: int = struct.unpack_from("<I", half, symbol.at)[0]
            struct.pack_into("<I", half, symbol.at, name + len(_C23))
            if symbol.version_at:
                struct.pack_into("<H", half, symbol.version_at, _ANY_VERSION)
    for version in library.versions:
        if (version.glibc or 0) > OLDEST_GLIBC:
            flags: int = struct.unpack_from("<H", half, version.at + 4)[0]
            struct.pack_into("<H", half, version.at + 4, flags | _WEAK_VERSION)
    struct.pack_into("<Q", half, 40, 0)  # no table of sections: a loader needs none
    struct.pack_into("<HHH", half, 58, 0, 0, 0)
    return half


def unloadable(image: Image, glibc: int, machine: int) -> str:
    """Return why such a machine with glibc 2.`glibc` cannot load the library, or "" if it can."""
    try:
        library = Library(image)
        if library.machine != machine:
            return "it is made for another processor"
        strict = [one.glibc for one in library.versions if not one.is_weak and (one.glibc or 0) > glibc]
        if strict:
            return f"it needs glibc 2.{max(one for one in strict if one)}, and here is 2.{glibc}"
        for symbol in library.undefined():
            version = library.version_of(symbol)
            if version and not symbol.is_weak and (version.glibc or 0) > glibc:
                return f"it calls {symbol.name} of glibc 2.{version.glibc}, and here is 2.{glibc}"
        return ""
    except (struct.error, IndexError, OverflowError):
        return "it is cut off or damaged"
    except NotALibrary as error:
        return str(error)
