"""Streams, events and captures."""

from tests.ghost.c_running import run


def test_a_capture_counts_a_node_for_each_kernel_copy_and_fill() -> None:
    assert run("""
at, s, graph = device(1), stream(), C.c_void_p()
launch(s); G.cudaStreamBeginCapture(s, 2)
launch(s); launch(s); G.cudaMemsetAsync(at, 1, C.c_size_t(8), s)
G.cudaMemcpyAsync(at, C.create_string_buffer(8), C.c_size_t(8), 1, s)
G.cudaStreamEndCapture(s, R(graph)); launch(s)
found = stats(); answer(nodes(graph), found["nodes"], found["graphs"], found["launches"], found["copies"])
""") == [4, 4, 1, 4, 0]


def test_a_stream_that_waits_for_a_captured_event_joins_the_capture_and_leaves_with_it() -> None:
    assert run("""
a, b, c, e, graph = stream(), stream(), stream(), event(), C.c_void_p()
G.cudaStreamBeginCapture(a, 2); G.cudaEventRecord(e, a); G.cudaStreamWaitEvent(b, e, 0)
launch(b); launch(c); G.cudaEventRecord(e, b); G.cudaStreamWaitEvent(a, e, 0)
during = []; state = C.c_int()
for s in (a, b, c): G.cudaStreamIsCapturing(s, R(state)); during.append(state.value)
G.cudaStreamEndCapture(a, R(graph)); G.cudaStreamIsCapturing(b, R(state))
answer(during, state.value, nodes(graph))
""") == [[1, 1, 0], 0, 1]


def test_two_captures_at_once_have_their_own_graphs() -> None:
    assert run("""
a, b, ga, gb = stream(), stream(), C.c_void_p(), C.c_void_p()
G.cudaStreamBeginCapture(a, 2); G.cudaStreamBeginCapture(b, 2)
launch(a); launch(b); launch(b)
G.cudaStreamEndCapture(a, R(ga)); G.cudaStreamEndCapture(b, R(gb)); answer(nodes(ga), nodes(gb))
""") == [1, 2]


def test_a_captured_stream_cannot_be_waited_for_and_no_capture_ends_twice() -> None:
    assert run("""
s, graph = stream(), C.c_void_p()
G.cudaStreamBeginCapture(s, 2); wait = G.cudaStreamSynchronize(s); G.cudaStreamEndCapture(s, R(graph))
answer(wait, G.cudaStreamSynchronize(s), G.cudaStreamEndCapture(s, R(graph)))
""") == [900, 0, 401]


def test_a_product_of_cublas_is_a_kernel_on_the_handles_stream() -> None:
    assert run("""
s, graph, handle, lt = stream(), C.c_void_p(), C.c_void_p(), C.c_void_p()
G.cublasCreate_v2(R(handle)); G.cublasSetStream_v2(handle, s)
G.cudaStreamBeginCapture(s, 2); G.cublasGemmEx(handle); n = C.c_void_p(None)
G.cublasLtMatmul(*[n] * 14, C.c_size_t(0), s)
G.cudaStreamEndCapture(s, R(graph)); answer([nodes(graph)])
""") == [2]


def test_a_collective_of_nccl_is_a_kernel_and_a_communicator_knows_its_place() -> None:
    assert run("""
class Id(C.Structure): _fields_ = [("bytes", C.c_char * 128)]
s, communicator, count, rank = stream(), C.c_void_p(), C.c_int(), C.c_int()
G.ncclCommInitRank.argtypes = [C.c_void_p, C.c_int, Id, C.c_int]
G.ncclCommInitRank(R(communicator), 8, Id(), 5)
G.ncclCommCount(communicator, R(count)); G.ncclCommUserRank(communicator, R(rank))
G.ncclAllReduce(None, None, C.c_size_t(4), 0, 0, communicator, s)
answer(count.value, rank.value, stats()["launches"])
""") == [8, 5, 1]


def test_a_callback_may_take_pythons_lock_from_another_thread() -> None:
    assert run("""
import threading
at = device(4 << 20); read = lambda: [get(at, 4) for _ in range(200)]
threads = [threading.Thread(target=read) for _ in range(4)]
[t.start() for t in threads]; [malloc(1) for _ in range(200)]; [t.join() for t in threads]
answer([len(heard)])
""") == [800]
