"""Device memory of a GPU that is not there: what fits, what is counted, what is given back."""

from tests.ghost.c_running import run

MIB = 1 << 20
TOTAL = 150109880320


def test_the_last_granule_fits_and_one_byte_more_does_not() -> None:
    code = f"""
first, at = malloc({TOTAL - 2 * MIB} // {2 * MIB} * {2 * MIB})
left = {TOTAL} - stats()["used"]
second, _ = malloc(left // {2 * MIB} * {2 * MIB})
third, nothing = malloc(1)
answer(first, second, third, nothing.value, G.cudaGetLastError(), G.cudaGetLastError())
"""
    assert run(code) == [0, 0, 2, None, 2, 0]


def test_memory_is_counted_in_granules_of_2_mib_and_given_back() -> None:
    assert run("""
_, at = malloc(1)
before = stats()
G.cudaFree(at)
after = stats()
answer(before["used"], after["used"], after["peak"], after["mallocs"], after["frees"])
""") == [2 * MIB, 0, 2 * MIB, 1, 1]


def test_free_and_total_add_up_on_each_device() -> None:
    code = """
free, total = C.c_size_t(), C.c_size_t()
G.cudaSetDevice(1); malloc(10 << 20); G.cudaMemGetInfo(R(free), R(total)); one = free.value
G.cudaSetDevice(0); G.cudaMemGetInfo(R(free), R(total))
answer(total.value - one, total.value - free.value, G.cudaSetDevice(2))
"""
    assert run(code, GHOST_DEVICES="2") == [10 * MIB, 0, 101]


def test_the_total_of_the_machine_at_hand_counts_instead_of_the_table_and_is_no_guess() -> None:
    code = """
free, total = C.c_size_t(), C.c_size_t()
G.cudaMemGetInfo(R(free), R(total)); answer(total.value, heard)
"""
    assert run(code, gpu="b300", GHOST_TOTAL="191000000000") == [191000000000, []]


def test_a_guessed_total_is_reported() -> None:
    code = """
free, total = C.c_size_t(), C.c_size_t()
G.cudaMemGetInfo(R(free), R(total)); answer(heard)
"""
    assert run(code, gpu="b300") == [[3, "total", 0]]


def test_memory_outside_torch_is_charged_only_if_it_fits() -> None:
    code = f"""
charge = lambda size: G.ghost_charge(0, C.c_int64(size))
a, b = charge({TOTAL}), charge(1)
c = charge(-{10 * MIB}); used = stats()["used"]
G.ghost_reset_peak(0)
answer(a, b, c, used, stats()["peak"])
"""
    assert run(code) == [0, 2, 0, TOTAL - 10 * MIB, TOTAL - 10 * MIB]


def test_physical_memory_is_charged_when_it_is_made_and_lives_until_it_is_unmapped() -> None:
    assert run("""
class Properties(C.Structure): _fields_ = [(n, C.c_int) for n in ("type", "handles", "where", "device")]
size = C.c_size_t(4 << 20); handle, at = C.c_void_p(), C.c_uint64()
G.cuMemCreate(R(handle), size, R(Properties(1, 0, 1, 0)), 0)
G.cuMemAddressReserve(R(at), size, C.c_size_t(0), C.c_uint64(0), C.c_ulonglong(0))
G.cuMemMap(at, size, C.c_size_t(0), handle, C.c_ulonglong(0))
G.cuMemRelease(handle); mapped = stats()["used"]
G.cuMemUnmap(at, size); answer(mapped, stats()["used"])
""") == [4 * MIB, 0]


def test_the_block_of_an_address_is_found_and_freed_memory_has_none() -> None:
    assert run("""
at = device(5 << 20); start, size = C.c_uint64(), C.c_size_t()
inside = C.c_uint64(at.value + 12345)
a = G.cuMemGetAddressRange_v2(R(start), R(size), inside)
same = start.value == at.value; G.cudaFree(at)
answer(a, same, size.value, G.cuMemGetAddressRange_v2(R(start), R(size), inside), G.cudaFree(at))
""") == [0, True, 6 * MIB, 500, 1]


def test_the_kind_of_a_pointer_is_known() -> None:
    assert run("""
out = (C.c_int * 40)(); kinds = []
pinned = C.c_void_p(); G.cudaHostAlloc(R(pinned), C.c_size_t(100), 0)
for at in (device(1), pinned, C.c_void_p(C.addressof(out))):
    G.cudaPointerGetAttributes(out, at); kinds.append((out[0], out[1]))
G.cudaFreeHost(pinned); answer(kinds)
""") == [[2, 0], [1, 0], [0, -2]]


def test_a_forked_child_has_its_own_count() -> None:
    assert run("""
at = device(2 << 20); put(at, b"before")
read, write = os.pipe(); child = os.fork()
if not child:
    malloc(2 << 20); put(at, b"inside")
    os.write(write, json.dumps((stats()["used"], get(at, 6).decode())).encode())
    os._exit(0)
os.waitpid(child, 0); answer(json.loads(os.read(read, 100)), stats()["used"], get(at, 6).decode())
""") == [[4 * MIB, "inside"], 2 * MIB, "before"]


def test_without_a_row_there_is_no_device() -> None:
    code = """
count = C.c_int(7); answer(G.cudaGetDeviceCount(R(count)), count.value, malloc(1)[0])
"""
    assert run(code, GHOST_ROW="", GHOST_DEVICES="0") == [100, 0, 100]


def test_a_limit_on_addresses_ends_with_one_line_that_names_it() -> None:
    assert run("""
import resource, subprocess
limited = "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 36, 1 << 36));"
program = limited + "import ctypes as C; G = C.CDLL('" + os.environ["GHOST_FOLDER"] + "/libghost.so');"
done = subprocess.run([sys.executable, "-c", program + "G.cudaSetDevice(0)"], capture_output=True, text=True)
answer(done.returncode, done.stderr.count("\\n"), "a limit on address space" in done.stderr)
""") == [70, 1, True]
