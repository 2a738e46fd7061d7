"""The table of GPUs."""

import re

import pytest

from runtime.ghost.build import SOURCES
from runtime.ghost.gpus import find, gpus
from tests.ghost.c_running import run

WANTED = [
    "h200", "h100", "h20", "b200", "gb200", "b300", "gb300",
    "a100-80gb", "a100-40gb", "l40s", "rtx-pro-6000", "rtx-5090",
]  # fmt: skip


def row_keys() -> set[str]:
    text = (SOURCES / "ghost.h").read_text()
    keys = re.search(r"#define ROW_KEYS\(KEY\)(.*?)enum RowKey", text, re.DOTALL)
    assert keys
    return set(re.findall(r"KEY\((\w+)\)", keys[1]))


def test_every_gpu_is_there() -> None:
    assert set(gpus()) == set(WANTED)


@pytest.mark.parametrize("key", WANTED)
def test_a_gpu_has_every_number_that_the_library_reads_and_a_source_for_each(key: str) -> None:
    gpu = gpus()[key]
    assert set(gpu.numbers) == row_keys()
    assert all(len(number.source) > 10 for number in gpu.numbers.values())


@pytest.mark.parametrize("key", WANTED)
def test_a_row_reaches_the_library_whole(key: str) -> None:
    code = """
name, value = C.create_string_buffer(256), C.c_int(); numbers = []
G.cuDeviceGetName(name, 256, 0); total = C.c_size_t(); G.cuDeviceTotalMem_v2(R(total), 0)
for number in (75, 76, 16, 38, 81, 97, 39, 106):
    G.cudaDeviceGetAttribute(R(value), number, 0); numbers.append(value.value)
answer(name.value.decode(), total.value, numbers, sorted(name for kind, name, _ in heard))
"""
    gpu = gpus()[key]
    read = ("major", "minor", "sms", "l2", "shared_sm", "shared_block", "threads_sm", "blocks_sm")
    values = [gpu.numbers[name].value for name in read]
    guesses = sorted({*read, "total"} & set(gpu.guesses))
    assert run(code, gpu=key) == [gpu.name, gpu.total_bytes, values, guesses]


def test_no_number_that_decides_memory_is_a_guess_on_an_h200() -> None:
    assert set(gpus()["h200"].guesses) == {"nvlinks"}


@pytest.mark.parametrize("key", ["h100", "b200", "gb200", "rtx-pro-6000"])
def test_the_total_of_this_gpu_was_seen_to_the_byte(key: str) -> None:
    source = gpus()[key].numbers["total"].source
    assert str(gpus()[key].total_bytes) in source and "total" not in gpus()[key].guesses


@pytest.mark.parametrize("key", WANTED)
def test_a_process_gets_a_little_less_than_nvidia_smi_says(key: str) -> None:
    numbers = gpus()[key].numbers
    assert 0.98 < numbers["total"].value / numbers["nvml_total"].value < 1


@pytest.mark.parametrize("name", ["H200", "NVIDIA H200", "nvidia-h200"])
def test_a_gpu_is_found_by_its_key_or_the_drivers_name(name: str) -> None:
    gpu = find(name)
    assert gpu is not None and gpu.key == "h200"


def test_a_name_that_nobody_knows_is_no_gpu() -> None:
    assert find("H2000") is None
