"""A zstd frame cut where its blocks begin, as RFC 8878 lays it out: none becomes more than 128 KB, so what is
decompressed at once is bounded, whoever made the frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator

_AT_ONCE = 8
_RUN_LENGTH = 1
_DICTIONARY_ID = (0, 1, 2, 4)
_CONTENT_SIZE = (0, 2, 4, 8)


def pieces_of(magic: bytes, read: Callable[[int], bytes]) -> Iterator[bytes]:
    """All bytes of the frame, a few blocks at once. `read` gives exactly as many bytes as are asked for."""
    first = read(1)
    flags = first[0]
    is_single, has_checksum = flags >> 5 & 1, flags >> 2 & 1
    size = _DICTIONARY_ID[flags & 3] + (_CONTENT_SIZE[flags >> 6] or is_single) + (not is_single)
    parts = [magic, first, read(size)]
    blocks, is_last = 0, False
    while not is_last:
        head = read(3)
        told = int.from_bytes(head, "little")
        is_last, kind, size = bool(told & 1), told >> 1 & 3, told >> 3
        parts += (head, read(1 if kind == _RUN_LENGTH else size))
        blocks += 1
        if is_last and has_checksum:
            parts.append(read(4))
        if is_last or blocks == _AT_ONCE:
            yield b"".join(parts)
            parts, blocks = [], 0
