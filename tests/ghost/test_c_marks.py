"""Which bytes of device memory hold what a GPU would hold there."""

from tests.ghost.c_running import run


def test_what_the_host_wrote_is_real_and_read_back_without_a_word() -> None:
    assert run("""
at = device(4 << 20); put(at, b"hello", 100)
answer(marked(at, 5, 100), marked(at, 6, 100), get(at, 5, 100).decode(), heard)
""") == [1, 0, "hello", []]


def test_reading_back_what_nobody_wrote_is_reported_with_its_size() -> None:
    code = 'at = device(4 << 20); put(at, b"x" * 8); get(at, 9); answer(heard)'
    assert run(code) == [[2, "copy to the host", 9]]


def test_a_copy_on_the_device_carries_what_is_real_and_nothing_else() -> None:
    assert run("""
a, b = device(8 << 20), device(8 << 20)
put(b, b"y" * 64); put(a, b"real", 16)
G.cudaMemcpy(b, a, C.c_size_t(64), 3)
answer(marked(b, 16), marked(b, 4, 16), marked(b, 44, 20), get(b, 4, 16).decode(), heard)
""") == [0, 1, 0, "real", []]


def test_a_fill_is_real_and_zeros_are_at_any_size() -> None:
    assert run("""
at = device(1 << 30); put(at, b"x" * 100, 5000)
G.cudaMemset(at, 0, C.c_size_t(1 << 30)); zeros = marked(at, 1 << 30), get(at, 100, 5000) == bytes(100)
G.cudaMemset(at, 1, C.c_size_t(1 << 30)); ones = marked(at, 1)
G.cuMemsetD32_v2(at, 7, C.c_size_t(2)); answer(zeros, ones, list(get(at, 8)), heard)
""") == [[1, True], 0, [7, 0, 0, 0, 7, 0, 0, 0], []]


def test_doubted_bytes_hold_their_values_and_a_copy_carries_both_but_freed_memory_holds_nothing() -> None:
    assert run("""
a, b, held = device(4 << 20), device(4 << 20), lambda at, size: G.ghost_held(at, C.c_size_t(size))
put(a, b"real"); G.ghost_mark(a, C.c_size_t(2), 2); G.cudaMemcpy(b, a, C.c_size_t(16), 3)
kept = [[held(at, 4), held(at, 5), marked(at, 1), marked(at, 2, 2)] for at in (a, b)]
G.cudaFree(a); answer(kept, get(b, 4).decode(), heard, held(a, 1))
""") == [[[1, 0, 0, 1]] * 2, "real", [[2, "copy to the host", 4]], 0]


def test_a_big_copy_from_the_host_is_not_kept_and_is_not_real() -> None:
    assert run("""
size = 33 << 20; at = device(size); put(at, bytes(size)); answer(marked(at, 1), stats()["copies"])
""") == [0, 1]


def test_marks_are_those_of_a_plain_list_of_bytes() -> None:
    """Make 2,000 random marks across the border of two 2 MiB chunks, and compare with one flag per byte."""
    assert run("""
import random
random.seed(7); at = device(4 << 20); begin, size = (2 << 20) - 300, 600
flags = bytearray(size); wrong = 0
for step in range(2000):
    low = random.randrange(size); high = random.randint(low, min(size, low + random.choice((1, 5, 60, 600))))
    real = random.random() < 0.5
    G.ghost_mark(C.c_void_p(at.value + begin + low), C.c_size_t(high - low), int(real))
    flags[low:high] = bytes([real]) * (high - low)
    a = random.randrange(size); b = random.randint(a, size)
    wrong += marked(at, b - a, begin + a) != all(flags[a:b])
    if step % 50 == 0: wrong += sum(marked(at, 1, begin + i) != flags[i] for i in range(size))
answer([wrong])
""") == [0]


def test_thousands_of_small_marks_are_quick() -> None:
    assert run("""
import time
at = device(2 << 20); began = time.process_time()
for i in range(20000): G.ghost_mark(C.c_void_p(at.value + i * 100), C.c_size_t(8), 1)
answer(time.process_time() - began < 2, marked(at, 8, 100 * 19999))
""") == [True, 1]


def test_a_captured_copy_does_not_happen_and_its_target_is_unreal_after_a_launch() -> None:
    assert run("""
at, s, graph, ready = device(2 << 20), stream(), C.c_void_p(), C.c_void_p()
put(at, b"old"); data = C.create_string_buffer(b"new")
G.cudaStreamBeginCapture(s, 2)
G.cudaMemcpyAsync(at, data, C.c_size_t(3), 1, s)
G.cudaStreamEndCapture(s, R(graph)); held = get(at, 3).decode(), marked(at, 3)
G.cudaGraphInstantiate(R(ready), graph, C.c_ulonglong(0)); G.cudaGraphLaunch(ready, s)
answer(held, marked(at, 3), nodes(graph))
""") == [["old", 1], 0, 1]
