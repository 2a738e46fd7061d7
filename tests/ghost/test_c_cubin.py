"""cubin.c reads the figures of a kernel from a fat binary, and never reads past the end of a damaged one."""

import ctypes
import random
import struct
import subprocess
from pathlib import Path

import pytest

from tests.ghost.small_library import CC, needs_cc

SOURCE = Path(__file__).resolve().parents[2] / "runtime" / "ghost" / "c" / "cubin.c"
CUBIN, PTX, LZ4 = 2, 1, 0x2000
pytestmark = needs_cc


class Figures(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint32), ("registers", ctypes.c_uint32), ("shared", ctypes.c_uint32))


def elf(kernels: dict[str, tuple[int, int, int]]) -> bytes:
    """A cubin of kernels by name: bytes of code, registers, bytes of shared memory."""
    symbols, texts = bytes(24), b"\0"
    info = struct.pack("<BBHH", 3, 1, 7, 0)[:4]  # an attribute without a size of its own
    for number, (name, (_, registers, _)) in enumerate(kernels.items(), 1):
        symbols += struct.pack("<IBBHQQ", len(texts), 0, 0, 0, 0, 0)
        texts += name.encode() + b"\0"
        info += struct.pack("<BBHII", 4, 0x2F, 8, number, registers)
    parts = [("", b"", 0, 0), (".strtab", texts, 3, 0), (".symtab", symbols, 2, 1), (".nv.info", info, 1, 2)]
    for name, (code, _, shared) in kernels.items():
        parts += [(f".text.{name}", bytes(code), 1, 2), (f".nv.shared.{name}", bytes(shared), 8, 0)]
    names = b"\0".join(name.encode() for name, *_ in parts) + b"\0.shstrtab\0"
    parts.append((".shstrtab", names, 3, 0))
    body, table, at = b"", b"", 0
    for name, content, kind, link in parts:
        table += struct.pack("<IIQQQQIIQQ", at, kind, 0, 0, 64 + len(body), len(content), link, 0, 1, 0)
        body += content
        at += len(name) + 1
    head = b"\x7fELF\2\1" + bytes(34) + struct.pack("<Q", 64 + len(body)) + bytes(12)
    return head + struct.pack("<HH", len(parts), len(parts) - 1) + body + table


def entry(content: bytes, arch: int, kind: int = CUBIN, packed: bytes | None = None, flags: int = 0) -> bytes:
    stored = content if packed is None else packed
    flags |= 0 if packed is None else LZ4
    size = len(stored) if packed is not None else 0
    head = struct.pack(
        "<HHIQIIHHIIIQQQ", kind, 1, 64, len(stored), size, 0, 0, 8, arch, 0, 0, flags, 0, len(content)
    )
    return head + stored


def fatbin(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def literals(data: bytes) -> bytes:
    """LZ4 without any repetition, for content longer than 15 bytes."""
    rest = len(data) - 15
    return bytes([0xF0]) + b"\xff" * (rest // 255) + bytes([rest % 255]) + data


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    assert CC is not None
    out = tmp_path_factory.mktemp("cubin") / "cubin.so"
    subprocess.run(
        [CC, "-std=c11", "-D_GNU_SOURCE", "-O1", "-shared", "-fPIC", SOURCE, "-o", out], check=True
    )
    return ctypes.CDLL(str(out))


_kept: list[object] = []


def read(reader: ctypes.CDLL, data: bytes, name: str, arch: int = 90) -> tuple[int, int, int] | None:
    held = ctypes.create_string_buffer(data, len(data) + 4096)
    _kept.append(held)  # what was read is remembered by its address
    figures = Figures()
    found = reader.cubin_kernel(held, name.encode(), arch, ctypes.byref(figures))
    return (figures.code, figures.registers, figures.shared) if found else None


KERNELS = {"add": (384, 12, 0), "multiply": (71808, 26, 1040)}


def test_code_registers_and_shared_memory_are_those_of_the_kernel(reader: ctypes.CDLL) -> None:
    data = fatbin(entry(elf(KERNELS), 90))
    assert {name: read(reader, data, name) for name in KERNELS} == KERNELS
    assert read(reader, data, "subtract") is None


def test_the_code_of_this_architecture_is_read(reader: ctypes.CDLL) -> None:
    others = [entry(elf({"add": (128 * arch, arch, 0)}), arch) for arch in (75, 80, 86, 100, 103)]
    assert read(reader, fatbin(*others), "add", 86) == (128 * 86, 86, 0)
    assert read(reader, fatbin(*others), "add", 89) == (128 * 86, 86, 0)
    assert read(reader, fatbin(*others), "add", 90) is None
    assert read(reader, fatbin(entry(b".version 8.0", 90, PTX)), "add") is None


def test_packed_code_is_unpacked(reader: ctypes.CDLL) -> None:
    whole = elf(KERNELS)
    assert read(reader, fatbin(entry(whole, 90, packed=literals(whole))), "add") == KERNELS["add"]
    repeated = bytes([0x1F]) + b"a" + struct.pack("<H", 1) + bytes([255] * 3 + [10])
    assert read(reader, fatbin(entry(b"a" * 795, 90, packed=repeated)), "add") is None


def test_a_damaged_library_is_not_read_past_its_end(reader: ctypes.CDLL) -> None:
    whole = elf(KERNELS)
    chance = random.Random(3)
    for data in (fatbin(entry(whole, 90)), fatbin(entry(whole, 90, packed=literals(whole)))):
        for _ in range(300):
            hurt = bytearray(data)
            for _ in range(chance.randint(1, 4)):
                hurt[chance.randrange(16, len(hurt) if chance.random() < 0.2 else 400)] = chance.randrange(
                    256
                )
            read(reader, bytes(hurt), "add")
