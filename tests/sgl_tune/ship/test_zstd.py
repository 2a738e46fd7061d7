"""A zstd frame is read whole, a few megabytes at a time whatever is in it, and to its own end."""

import io
from random import Random

import pytest

from sgl_tune.ship.manifest import BadBundle
from sgl_tune.ship.members import compressed, decompressed

zstandard = pytest.importorskip("zstandard")
_MOST = 128 * (128 << 10)


def _plain(size: int) -> bytes:
    random = Random(size)
    words = [random.randbytes(random.randrange(1, 400)) for _ in range(40)]
    found = b"".join(random.choice(words) for _ in range(size // 100 + 1))
    return (found + random.randbytes(size // 4) + bytes(size))[:size]


def _read(frame: bytes) -> list[bytes]:
    return list(decompressed(io.BytesIO(frame), lambda data: None))


@pytest.mark.parametrize("size", [0, 1, 255, 256, 70_000, 1 << 17, 3_000_001])
@pytest.mark.parametrize("settings", [{}, {"write_checksum": True}, {"write_content_size": False}])
def test_every_kind_of_frame_is_read_whole(size: int, settings: dict[str, bool]) -> None:
    plain = _plain(size)
    found = _read(zstandard.ZstdCompressor(level=3, **settings).compress(plain))
    assert b"".join(found) == plain
    assert all(0 < len(piece) <= _MOST for piece in found)


def test_what_pack_writes_is_read() -> None:
    plain = _plain(9_000_000)
    frame = b"".join(compressed(iter([plain]), "zstd"))
    assert b"".join(_read(frame)) == plain


def test_a_bomb_comes_a_few_megabytes_at_a_time() -> None:
    size = 256 << 20
    zeros = zstandard.ZstdCompressor(level=19, write_content_size=False).compressobj()
    frame = b"".join(zeros.compress(bytes(1 << 20)) for _ in range(size >> 20)) + zeros.flush()
    assert len(frame) < size / 10_000
    total = 0
    for piece in decompressed(io.BytesIO(frame), lambda data: None):
        assert len(piece) <= _MOST
        total += len(piece)
    assert total == size


def test_a_frame_that_is_cut_off_anywhere_is_said_to_be() -> None:
    frame = zstandard.ZstdCompressor(level=3, write_checksum=True).compress(_plain(400))
    for end in range(4, len(frame)):
        with pytest.raises(BadBundle, match="cut off"):
            _read(frame[:end])


@pytest.mark.parametrize(
    ("rest", "says"), [(b"x", "bytes follow"), (b"\x28\xb5\x2f\xfd", "a second compressed stream")]
)
def test_bytes_after_the_frame_are_refused(rest: bytes, says: str) -> None:
    with pytest.raises(BadBundle, match=says):
        _read(zstandard.ZstdCompressor().compress(b"all") + rest)


def test_damage_is_never_read_as_something_else() -> None:
    plain, random = _plain(50_000), Random(1)
    frame = zstandard.ZstdCompressor(level=3, write_checksum=True).compress(plain)
    for _ in range(300):
        at = random.randrange(4, len(frame))
        damaged = frame[:at] + bytes([frame[at] ^ (1 << random.randrange(8))]) + frame[at + 1 :]
        try:
            assert b"".join(_read(damaged)) == plain
        except BadBundle:
            continue


def test_every_byte_is_handed_over_once() -> None:
    frame = zstandard.ZstdCompressor(level=3).compress(_plain(2_000_000))
    seen: list[bytes] = []
    for _ in decompressed(io.BytesIO(frame), seen.append):
        pass
    assert b"".join(seen) == frame
