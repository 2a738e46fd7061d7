"""The table of GPUs."""

import re

from runtime.server.gpus import CPU, GPUS


def test_the_bytes_of_a_gpu_are_those_of_its_source() -> None:
    told = {gpu.name: re.search(r"([\d.]+) GiB", gpu.source) for gpu in GPUS}
    found = {gpu.name: gpu.cuda_bytes for gpu in GPUS if gpu.cuda_bytes is not None and told[gpu.name]}
    assert {name: f"{count / (1 << 30):.2f}" for name, count in found.items()} == {
        name: one[1] for name, one in told.items() if one
    }


def test_a_cpu_has_no_memory_that_a_start_could_fill() -> None:
    assert (CPU.name, CPU.arch, CPU.memory_mib, CPU.usable_bytes) == ("CPU", "cpu", 0, 0)
