"""The random numbers that torch draws on a GPU for a small tensor: one thread draws one number.

Philox 4x32 with ten rounds, as in cuRAND: the seed is the key, the thread is the subsequence.
"""

import struct

THREADS = 256  # of the single block that fills such a small tensor
_MASK = 0xFFFFFFFF
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_STEPS = 0x9E3779B9, 0xBB67AE85


def uniform(seed: int, offset: int, count: int, low: float, high: float) -> list[float]:
    """Return `tensor.uniform_(low, high)` for `count` elements, at most THREADS, before rounding."""
    return [low + _between_0_and_1(seed, offset, thread) * (high - low) for thread in range(count)]


def _between_0_and_1(seed: int, offset: int, thread: int) -> float:
    exact = _drawn(seed, offset, thread)[offset % 4] * 2.0**-32 + 2.0**-33
    (drawn,) = struct.unpack("f", struct.pack("f", exact))
    return 0.0 if drawn == 1.0 else drawn  # torch turns the interval (0, 1] round


def _drawn(seed: int, offset: int, thread: int) -> tuple[int, int, int, int]:
    """Return the four numbers of this thread and offset."""
    a, b, c, d = (offset // 4) & _MASK, (offset // 4) >> 32, thread, 0
    keys = seed & _MASK, seed >> 32 & _MASK
    for _ in range(10):
        first, second = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        a, b, c, d = (
            (second >> 32) ^ b ^ keys[0],
            second & _MASK,
            (first >> 32) ^ d ^ keys[1],
            first & _MASK,
        )
        keys = (keys[0] + _STEPS[0]) & _MASK, (keys[1] + _STEPS[1]) & _MASK
    return a, b, c, d
