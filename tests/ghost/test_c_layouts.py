"""The ghost's structures lie as those of real headers do, where a CUDA toolkit is installed."""

import re
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from runtime.ghost.build import SOURCES
from tests.ghost.c_running import run

PROPERTY = re.compile(r"PROPERTY\(([\w\[\]]+), (\d), (-?\d+), (-?\d+), ")
HEADERS = sorted({path.resolve() for path in Path("/usr/local").glob("cuda*/include/cuda_runtime_api.h")})
# A field of the headers' structure, and ours.
FIELDS = {
    ("struct cudaPointerAttributes", "PointerAttributes"): {
        "type": "type", "device": "device", "devicePointer": "device_pointer", "hostPointer": "host_pointer",
    },
    ("struct cudaFuncAttributes", "FunctionAttributes"): {
        "sharedSizeBytes": "shared", "localSizeBytes": "local", "maxThreadsPerBlock": "max_threads",
        "numRegs": "registers", "ptxVersion": "ptx", "binaryVersion": "binary",
        "maxDynamicSharedSizeBytes": "max_dynamic_shared", "requiredClusterWidth": "cluster",
        "nonPortableClusterSizeAllowed": "non_portable_clusters",
    },
}  # fmt: skip


def properties(major: int) -> dict[str, tuple[int, int]]:
    """Offset and size of each field that this major version has."""
    rows = PROPERTY.findall((SOURCES / "layouts.h").read_text())
    at = 3 if major >= 13 else 2
    return {row[0]: (int(row[at]), int(row[1])) for row in rows if int(row[at]) >= 0}


@pytest.mark.parametrize("major", [12, 13])
def test_no_two_properties_overlap(major: int) -> None:
    rows = sorted(properties(major).values())
    assert len(rows) > 70
    assert all(first + size <= second for (first, size), (second, _) in pairwise(rows))


@pytest.mark.parametrize("header", HEADERS, ids=lambda path: path.parts[3])
def test_layouts_are_those_of_real_headers(header: Path, tmp_path: Path) -> None:
    found = re.search(r"#define CUDART_VERSION\s+(\d+)", header.read_text())
    assert found
    major = int(found[1]) // 1000
    checks = [
        f'_Static_assert(offsetof(struct cudaDeviceProp, {name}) == {at}, "{name}");'
        f'_Static_assert(sizeof(((struct cudaDeviceProp *)0)->{name}) == {size}, "{name}");'
        for name, (at, size) in properties(major).items()
    ]
    checks.append('_Static_assert(sizeof(struct cudaDeviceProp) == PROPERTIES_SIZE, "size");')
    for (theirs, ours), fields in FIELDS.items():
        checks.append(f'_Static_assert(sizeof({theirs}) == sizeof({ours}), "{ours}");')
        checks += [
            f'_Static_assert(offsetof({theirs}, {a}) == offsetof({ours}, {b}), "{a}");'
            for a, b in fields.items()
        ]
    code = tmp_path / "layouts.c"
    headers = ("<stddef.h>", "<driver_types.h>", '"layouts.h"')
    code.write_text("\n".join([*(f"#include {one}" for one in headers), *checks]))
    folders = (f"-I{header.parent}", f"-I{SOURCES}")
    command = ["cc", "-fsyntax-only", f"-DCUDA_MAJOR={major}", *folders, str(code)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


READ = """
out = C.create_string_buffer(2048); G.cudaGetDeviceProperties{}(out, 0)
at = lambda offset, kind: kind.from_buffer(out, offset).value
"""


def test_properties_of_cuda_13_are_the_rows() -> None:
    code = "answer(out.value.decode(), at(288, C.c_size_t), at(360, C.c_int), at(384, C.c_int))"
    assert run(READ.format("") + code) == ["NVIDIA H200", 150109880320, 9, 132]


def test_properties_of_cuda_12_are_the_rows_in_their_own_places() -> None:
    code = "answer(at(288, C.c_size_t), at(348, C.c_int), at(360, C.c_int), at(388, C.c_int))"
    assert run(READ.format("_v2") + code, major=12) == [150109880320, 1980000, 9, 132]


def test_the_older_properties_of_cuda_12_leave_what_follows_them_alone() -> None:
    read = READ.format("").replace("G.cuda", 'out[712] = b"x"; G.cuda', 1)
    assert run(read + "answer(out[712].decode(), at(360, C.c_int))", major=12) == ["x", 9]


def test_the_versions_are_those_that_torch_was_built_for() -> None:
    code = """
cuda, nccl = C.c_int(), C.c_int()
G.cudaRuntimeGetVersion(R(cuda)); G.ncclGetVersion(R(nccl)); answer(cuda.value, nccl.value)
"""
    assert run(code) == [13000, 22809]
    assert run(code, major=12) == [12000, 22809]


def test_capture_information_has_the_arguments_of_its_cuda() -> None:
    code = """
s, state, number = stream(), C.c_int(), C.c_ulonglong()
G.cudaStreamBeginCapture(s, 2)
none = [None] * ({major} == 13 and 4 or 0)
G.cudaStreamGetCaptureInfo(s, R(state), R(number), *none); answer(state.value, number.value)
"""
    for major in (12, 13):
        assert run(code.format(major=major), major=major) == [1, 1]
