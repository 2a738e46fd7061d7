"""The table of memory outside torch: its contents, and how the C libraries use it."""

import pytest

from runtime.ghost.outside import TABLE, Number, Outside, table
from tests.ghost.c_running import run
from tests.ghost.real_starts import real_starts


def test_the_table_has_at_most_sixty_numbers_and_no_models_name() -> None:
    numbers = table().numbers
    assert len(numbers) <= 60
    text = TABLE.read_text().lower()
    assert not [start.family for start in real_starts() if start.family.split("-")[0] in text]


def test_each_number_says_where_it_was_seen_and_how_far_it_may_be_off() -> None:
    assert all(one.source and one.doubt >= 0 and one.bytes >= 0 for one in table().numbers.values())


def test_a_communicator_that_nobody_measured_lies_on_a_line() -> None:
    two, six = Number(200, 0, "seen"), Number(400, 0, "seen")
    known = Outside({"context": Number(7, 0, "seen"), "communicator_2": two, "communicator_6": six})
    assert [known.communicator(ranks).bytes for ranks in (2, 3, 4, 6, 8)] == [200, 250, 300, 400, 500]
    assert known.communicator(2) == two
    assert known.communicator(4).doubt == 150
    assert "context=7;2=200;3=250" in known.text()


def test_a_table_without_communicators_names_none() -> None:
    assert Outside({"context": Number(7, 0, "seen")}).text() == "context=7"


def test_other_bytes_keep_the_rest_of_a_table() -> None:
    changed = table().with_numbers(context=5)
    assert changed.numbers["context"].bytes == 5
    assert changed.numbers["graph"] == table().numbers["graph"]


def test_nothing_appears_before_a_table_is_told() -> None:
    found = run("device(1); answer(used(), graph(3)[0], used(), counted())")
    assert found == [2, 0, 2, [0, 0, 1, 3, *[0] * 12]]


def test_a_context_that_is_there_already_is_charged_at_once_and_only_once() -> None:
    code = "device(1); told('context=10485760'); a = used(); device(1); answer(a, used())"
    assert run(code) == [12, 14]


def test_libraries_and_the_handle_of_cublas_are_charged_once() -> None:
    assert run("""
told('libraries=4194304;cublas=6291456')
def handle(): return G.cublasCreate_v2(R(C.c_void_p()))
G.ghost_appears(0, b"libraries", 0); a = used(); G.ghost_appears(0, b"libraries", 0)
answer(a, used(), handle(), handle(), used())""") == [4, 4, 0, 0, 10]


def test_code_takes_a_granule_when_the_room_is_full() -> None:
    assert run("""
told(f'room={3 << 20};kernel={1 << 20}')
seen = []
for _ in range(6): G.ghost_appears(0, b"kernel", 0); seen.append(used())
answer(seen)""") == [0, 0, 2, 2, 4, 4]


def test_a_graph_holds_memory_until_it_is_destroyed() -> None:
    assert run("""
told('graph=1048576;node=2097152')
before = used(); status, made = graph(2); there = used(); G.cudaGraphExecDestroy(made)
answer(status, there - before, used() - before)""") == [0, 5, 0]


def test_a_further_stream_in_a_graph_counts_as_a_graph() -> None:
    assert run("""
told('graph=1048576')
main, side, event_ = stream(), stream(), event()
G.cudaStreamBeginCapture(main, 0); G.cudaEventRecord(event_, main); G.cudaStreamWaitEvent(side, event_, 0)
launch(side); one, made = C.c_void_p(), C.c_void_p(); G.cudaStreamEndCapture(main, R(one)); before = used()
G.cudaGraphInstantiateWithFlags(R(made), one, C.c_ulonglong(0)); answer([used() - before])
""") == [2]


def test_a_launch_that_came_from_python_is_a_node_of_the_graph_being_captured() -> None:
    assert run("""
told('node=1048576')
on = stream(); G.ghost_launched(); G.cudaStreamBeginCapture(on, 0); G.ghost_launched(); G.ghost_launched()
one, made = C.c_void_p(), C.c_void_p(); G.cudaStreamEndCapture(on, R(one)); before = used()
G.cudaGraphInstantiateWithFlags(R(made), one, C.c_ulonglong(0)); answer(nodes(one), used() - before)
""") == [2, 2]


def test_what_does_not_fit_is_out_of_memory_and_charges_nothing() -> None:
    assert run("""
told('graph=1099511627776;cublas=1099511627776;2=1099511627776')
answer(graph(1)[0], G.cublasCreate_v2(R(C.c_void_p())), G.ghost_appears(0, b"communicator", 2), used())
""") == [2, 3, 2, 0]


def test_the_first_communicator_brings_the_libraries_and_room_for_code() -> None:
    assert run("""
told(f'first=1048576;2=2097152;4=4194304;libraries=8388608;room=1048576;kernel={8 << 20}')
a = C.c_void_p(); G.ncclCommInitRank(R(a), 2, (C.c_char * 128)(), 0); one = used()
b = C.c_void_p(); G.ghost_appears(0, b"communicator", 4); G.ghost_appears(0, b"libraries", 0); two = used()
G.ghost_appears(0, b"kernel", 0); answer(one, two, used())""") == [11, 15, 15]


def test_messages_of_nccl_in_a_graph_are_counted() -> None:
    assert run("""
told('message=1048576;message_graph=2097152')
on = stream(); G.cudaStreamBeginCapture(on, 0)
for _ in range(3): G.ncclAllReduce(None, None, C.c_size_t(1), 0, 0, None, on)
one, made = C.c_void_p(), C.c_void_p(); G.cudaStreamEndCapture(on, R(one)); before = used()
G.cudaGraphInstantiateWithFlags(R(made), one, C.c_ulonglong(0)); answer([used() - before])
""") == [5]


def test_a_message_that_came_from_python_is_one_of_the_graph_being_captured() -> None:
    assert run("""
told('message=1048576;message_graph=2097152;node=4194304')
on = stream(); G.ghost_appears(0, b"message", 0)
G.cudaStreamBeginCapture(on, 0); G.ghost_appears(0, b"message", 0)
one, made = C.c_void_p(), C.c_void_p(); G.cudaStreamEndCapture(on, R(one)); before = used()
G.cudaGraphInstantiateWithFlags(R(made), one, C.c_ulonglong(0)); answer(nodes(one), used() - before)
""") == [1, 7]


def test_a_half_takes_its_memory_when_a_kernel_without_code_runs() -> None:
    assert run("""
told(f'module=4194304;room={1 << 40}')
wrapper = (C.c_uint64 * 3)(); module = G.__cudaRegisterFatBinary; module.restype = C.c_void_p
handle = C.c_void_p(module(wrapper)); f = C.c_void_p(0x1000)
G.__cudaRegisterFunction(handle, f, b"f", b"f")
def run_it(): return G.cudaLaunchKernel(f, Dim3(1, 1, 1), Dim3(1, 1, 1), None, C.c_size_t(0), None)
G.ghost_appears(0, b"module", 1); loaded = used(); run_it(); ran = used(); run_it()
G.ghost_appears(0, b"module", 0); answer(loaded, ran, used(), counted()[7])""") == [0, 4, 8, 2]


def test_the_error_bar_grows_with_what_a_start_brought() -> None:
    known = table()
    doubt = {name: one.doubt for name, one in known.numbers.items()}
    alone = doubt["context"] + doubt["room"] + doubt["cublas_code"]
    assert known.doubt_of({"communicators_1": 3}) == alone
    graphs = {"graphs": 10, "branches": 2, "nodes": 100}
    assert known.doubt_of(graphs) == alone + 12 * doubt["graph"] + 100 * doubt["node"]
    several = {"communicators_2": 1, "messages": 3, "message_graphs": 1}
    expected = doubt["first"] + doubt["communicator_2"] + 3 * doubt["message"] + doubt["message_graph"]
    assert known.doubt_of(several) == alone + expected


def test_what_came_and_the_table_lacks_is_refused() -> None:
    numbers = table().numbers
    without = Outside({name: one for name, one in numbers.items() if name not in ("message", "peers_4")})
    assert without.doubt_of({"graphs": 1}) == table().doubt_of({"graphs": 1})
    for counted, lacking in (({"messages": 1}, "message"), ({"communicators_4": 1}, "peers_4")):
        with pytest.raises(KeyError, match=f"lacks {lacking}"):
            without.doubt_of(counted)


@pytest.mark.parametrize("ranks", [4, 8])
def test_one_of_more_than_two_ranks_holds_more_than_rank_0(ranks: int) -> None:
    known = table()
    peers = known.numbers["peers_4"]
    more = known.doubt_of({f"communicators_{ranks}": 1}) - known.doubt_of({"communicators_2": 1})
    of_groups = known.communicator(ranks).doubt - known.communicator(2).doubt
    assert more == of_groups + peers.bytes + peers.doubt > of_groups


def test_memory_of_a_peer_is_mapped_and_takes_none_here() -> None:
    assert run("""
told(''); handle, at, out = C.c_void_p(), C.c_uint64(), (C.c_int * 8)(); before = used()
imported = G.cuMemImportFromShareableHandle(R(handle), None, 1)
asked = G.cuMemGetAllocationPropertiesFromHandle(out, handle)
G.cuMemAddressReserve(R(at), C.c_size_t(4 << 20), C.c_size_t(0), C.c_uint64(0), C.c_ulonglong(0))
size = C.c_size_t(4 << 20); mapped = G.cuMemMap(at, size, C.c_size_t(0), handle, C.c_ulonglong(0))
nobody = G.cuMemMap(at, size, C.c_size_t(0), None, C.c_ulonglong(0)); unmapped = G.cuMemUnmap(at, size)
answer(imported, asked, list(out)[:4], mapped, nobody, unmapped, G.cuMemRelease(handle), used() - before)
""") == [0, 0, [1, 1, 1, 0], 0, 1, 0, 0, 0]


def test_a_handle_that_is_retained_keeps_its_memory() -> None:
    assert run("""
told(''); handle, again, other, at = C.c_void_p(), C.c_void_p(), C.c_void_p(), C.c_uint64()
size = C.c_size_t(4 << 20); zero = C.c_size_t(0); G.cuMemCreate(R(handle), size, None, C.c_ulonglong(0))
G.cuMemAddressReserve(R(at), size, zero, C.c_uint64(0), C.c_ulonglong(0))
G.cuMemMap(at, size, zero, handle, C.c_ulonglong(0)); there = C.c_void_p(at.value + 4096)
same = G.cuMemRetainAllocationHandle(R(again), there) == 0 and again.value == handle.value
G.cuMemRelease(handle); G.cuMemUnmap(at, size); kept = used(); G.cuMemRelease(again); gone = used()
plain = device(1); status = G.cuMemRetainAllocationHandle(R(other), plain)
answer(same, kept, gone, status, G.cuMemRelease(other), used())""") == [True, 4, 0, 0, 0, 2]
