"""Functions found by name: stubs, the driver's entry points, attributes that are guesses."""

from runtime.ghost.build import stub_source
from runtime.ghost.symbols import Needed
from tests.ghost.c_running import built, environment, run


def test_a_versioned_name_gives_the_function_that_this_version_means() -> None:
    assert run("""
wanted = ("cuMemAlloc", "_v2"), ("cuInit", ""), ("cuStreamGetCaptureInfo", "_v3")
answer([entry(name)[1] == address(name + suffix) for name, suffix in wanted],
       entry("cuStreamGetCaptureInfo", 11030)[1] == address("cuStreamGetCaptureInfo_v2"), heard)
""") == [[True, True, True], True, []]


def test_a_function_that_is_not_written_is_found_and_says_its_name_when_it_is_called() -> None:
    assert run("""
status, f, found = entry("cuUnheardOf"); before = list(heard)
call = C.CFUNCTYPE(C.c_int)(f); call(); call()
answer(status, found, before, heard, entry("cuUnheardOf")[1] == f, entry("cuOther")[1] == f)
""") == [0, 0, [], [[1, "cuUnheardOf", 0]], True, False]


def test_what_is_newer_than_the_driver_is_not_there_as_on_that_driver() -> None:
    code = 'answer(entry("cuFromTheFuture", 99000), entry("notOfCuda")[:2], heard)'
    assert run(code) == [[500, None, 1], [500, None], [[5, "notOfCuda", 0]]]


def test_a_library_whose_own_runtime_starts_is_named_once() -> None:
    assert run("""
table = C.c_void_p(1); ask = lambda byte: G.cuGetExportTable(R(table), bytes([byte] * 16))
answer(ask(1), ask(2), table.value, [(kind, name.split(" of ")[0]) for kind, name, _ in heard])
""") == [801, 801, None, [[5, "CUDA runtime"]]]


def test_a_stub_speaks_once_for_each_listener() -> None:
    assert run("""
L = C.CDLL(os.environ["GHOST_FOLDER"] + "/libcudart.so.13")
a = L.cudaFrobnicate(); L.cudaFrobnicate(); first = list(heard)
G.ghost_listen(say); L.cudaFrobnicate(); answer(a, first, len(heard))
""") == [0, [[1, "cudaFrobnicate", 0]], 2]


def test_a_stub_of_nvml_is_not_supported() -> None:
    code = 'L = C.CDLL(os.environ["GHOST_FOLDER"] + "/libnvidia-ml.so.1"); answer(L.nvmlInit_v2())'
    assert run(code) == 0
    needed = Needed("libnvidia-ml.so.1", (("nvmlDeviceGetFanSpeed", None),))
    assert "return 3;" in stub_source(needed, frozenset())


def test_the_library_of_a_name_leads_to_the_ghosts_functions() -> None:
    code = """
L = C.CDLL("libcudart.so.13"); at = C.c_void_p(); L.cudaMalloc(R(at), C.c_size_t(1)); answer(stats()["used"])
"""
    assert run(code, LD_LIBRARY_PATH=str(built())) == 2 << 20


def test_an_attribute_that_was_measured_is_silent_and_one_that_was_not_is_said() -> None:
    code = """
value = C.c_int(); found = []
for number in (16, 39, 81, 97, 38, 110):
    G.cudaDeviceGetAttribute(R(value), number, 0); found.append(value.value)
known = list(heard); G.cudaDeviceGetAttribute(R(value), 200, 0); G.cudaDeviceGetAttribute(R(value), 200, 0)
answer(found, known, heard)
"""
    guess = [[3, "device attribute 200", 0]]
    assert run(code) == [[132, 2048, 233472, 232448, 62914560, 1], [], guess]


def test_on_another_gpu_what_only_an_h200_answered_is_a_guess() -> None:
    code = "value = C.c_int(); G.cudaDeviceGetAttribute(R(value), 110, 0); answer(value.value, heard)"
    assert run(code, gpu="l40s") == [1, [[3, "device attribute 110", 0]]]


def test_nvml_knows_the_device_by_index_bus_and_uuid() -> None:
    code = """
h, again, name, memory = C.c_void_p(), C.c_void_p(), C.create_string_buffer(96), (C.c_ulonglong * 3)()
G.nvmlDeviceGetHandleByIndex_v2(1, R(h)); G.nvmlDeviceGetUUID(h, name, 96)
G.nvmlDeviceGetHandleByUUID(name, R(again)); bus = C.c_void_p()
G.nvmlDeviceGetHandleByPciBusId_v2(b"00000000:02:00.0", R(bus)); G.nvmlDeviceGetMemoryInfo(h, memory)
same = h.value == again.value == bus.value
answer(same, len(name.value), list(memory), G.nvmlDeviceGetHandleByIndex_v2(2, R(h)))
"""
    total, reserved = 150754820096, 150754820096 - 150109880320
    assert run(code, GHOST_DEVICES="2") == [True, 40, [total, total - reserved, reserved], 2]


def test_a_kernels_architecture_is_read_from_its_fat_binary() -> None:
    """The fat binary has code for sm_80 and sm_90 and PTX for 100. On an H200 the driver would run the sm_90
    code. It has no machine code, so its registers are a guess."""
    assert run("""
import struct
def part(kind, arch):
    return struct.pack("<HHIQIIHHI", kind, 0, 64, 32, 0, 0, 0, 0, arch).ljust(64, b"\\0") + bytes(32)
body = part(2, 80) + part(2, 90) + part(1, 100)
data = C.create_string_buffer(struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body)
wrapper = C.create_string_buffer(struct.pack("<IIQQ", 0x466243B1, 1, C.addressof(data), 0))
getattr(G, "__cudaRegisterFatBinary").restype = C.c_void_p
module = C.c_void_p(getattr(G, "__cudaRegisterFatBinary")(wrapper))
getattr(G, "__cudaRegisterFunction")(module, C.c_void_p(0x1000), None, b"kernel")
out = (C.c_int * 40)(); G.cudaFuncGetAttributes(out, C.c_void_p(0x1000)); answer(out[8], out[9], heard)
""") == [90, 90, [[3, "attributes of kernel", 0]]]


def test_the_ghost_stands_before_nvidias_libraries_that_torch_would_load() -> None:
    code = """
torch = C.CDLL(os.environ["TORCH"]); answer(torch.probe(), heard)
"""
    torch = environment() / "torch" / "lib" / "libc10_cuda.so"
    preload = ":".join(str(path) for path in [built() / "libghost.so", *sorted(built().glob("lib*.so.*"))])
    names = [[1, "cudaFrobnicate", 0], [1, "ncclUnheardOf", 0]]
    assert run(code, TORCH=str(torch)) == [198, []]
    assert run(code, TORCH=str(torch), LD_PRELOAD=preload, LD_LIBRARY_PATH=str(built())) == [0, names]


def test_a_version_is_the_one_that_torch_pins_and_a_guess_where_it_pins_none() -> None:
    assert run("""
v, part, parts = C.c_int(), C.c_int(), []
for which in range(3): G.cudnnGetProperty(which, R(part)); parts.append(part.value)
pinned = list(heard); G.cublasGetVersion_v2(None, R(v))
answer(v.value, G.cudnnGetVersion(), parts, pinned, heard)
""") == [130000, 91900, [9, 19, 0], [], [[3, "version of cuBLAS", 0]]]


def test_a_guess_about_a_kernel_names_the_kernel() -> None:
    assert run("""
getattr(G, "__cudaRegisterFunction")(C.byref(C.c_int(90)), C.c_void_p(0x2000), None, b"scan_kernel")
n = C.c_int(); G.cudaOccupancyMaxActiveBlocksPerMultiprocessor(R(n), C.c_void_p(0x2000), 256, C.c_size_t(0))
answer(n.value, heard)
""") == [4, [[3, "occupancy of scan_kernel", 0]]]


def test_multicast_is_not_supported_and_said_to_be_a_guess() -> None:
    assert run("""
size, value = C.c_size_t(7), C.c_int(7); G.cudaDeviceGetAttribute(R(value), 132, 0)
answer(G.cuMulticastGetGranularity(R(size), None, 1), value.value, [(kind, name) for kind, name, _ in heard])
""") == [801, 0, [[3, "NVLink multicast"]]]


def test_confidential_computing_is_off_and_the_drivers_log_is_taken() -> None:
    assert run("""
out = (C.c_uint * 5)(9, 9, 9, 9, 9); log = C.c_void_p()
status = G.cuLogsRegisterCallback(None, None, R(log))
answer(G.nvmlSystemGetConfComputeSettings(out), list(out), status, heard)
""") == [0, [9, 0, 0, 0, 0], 0, []]
