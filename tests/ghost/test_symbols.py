"""Which functions an environment needs."""

import shutil
from pathlib import Path

import pytest

from runtime.ghost.build import version_script
from runtime.ghost.symbols import Needed, Needs, NoCuda, exported, needs
from tests.ghost.c_running import built, compile_library, environment, make_environment


def functions(wanted: Needs, soname: str) -> dict[str, str | None]:
    return next(dict(one.functions) for one in wanted.libraries if one.soname == soname)


def test_functions_are_read_with_the_version_under_which_they_are_imported() -> None:
    wanted = needs([environment()])
    assert functions(wanted, "libcudart.so.13")["cudaMalloc"] == "libcudart.so.13"
    assert functions(wanted, "libnccl.so.2") == {"ncclAllReduce": None, "ncclUnheardOf": None}


def test_a_version_is_filed_under_the_library_that_has_it(tmp_path: Path) -> None:
    """NVSHMEM's functions have a version that is not its library's name."""
    site = make_environment(tmp_path / "site")
    own = tmp_path / "libnvshmem_host.so.3"
    compile_library(own, "int nvshmem_init(void) { return 0; }", own.name, "NVSHMEM")
    uses = "int nvshmem_init(void); int f(void) { return nvshmem_init(); }"
    compile_library(site / "uses.so", uses, "uses.so", "", own)
    wanted = next(one for one in needs([site]).libraries if one.soname == own.name)
    assert wanted.functions == (("nvshmem_init", "NVSHMEM"),)
    assert version_script(wanted) == "NVSHMEM { global: *; };\n"


def test_a_library_without_versions_has_one_of_ours() -> None:
    assert version_script(Needed("libnccl.so.2", (("ncclSend", None),))) == "GHOST { global: *; };\n"


def test_what_is_only_opened_by_name_is_wanted_too() -> None:
    sonames = {one.soname for one in needs([environment()]).libraries}
    assert {"libcuda.so.1", "libnvidia-ml.so.1"} <= sonames


def test_the_major_version_is_that_of_the_runtime_that_torch_is_linked_to() -> None:
    assert needs([environment(12)]).major == 12
    assert dict(needs([environment(12)]).versions)["CUDA_VERSION"] == 12000
    assert dict(needs([environment(13)]).versions)["NCCL_VERSION"] == 22809


def test_names_in_the_text_of_pynvml_are_functions_of_nvml(tmp_path: Path) -> None:
    site = make_environment(tmp_path / "site")
    (site / "pynvml.py").write_text('fn = _nvmlGetFunctionPointer("nvmlDeviceGetFanSpeed")\n')
    assert "nvmlDeviceGetFanSpeed" in functions(needs([site]), "libnvidia-ml.so.1")


def test_nvidias_own_libraries_are_not_read(tmp_path: Path) -> None:
    site = make_environment(tmp_path / "site")
    before = needs([site])
    own = site / "nvidia" / "cu13" / "lib"
    own.mkdir(parents=True)
    shutil.copy(site / "torch" / "lib" / "libc10_cuda.so", own / "libcublas.so.13")
    assert needs([site]) == before


@pytest.mark.parametrize("is_linked", [True, False], ids=["linked", "beside"])
def test_packages_that_are_linked_or_lie_in_another_folder_are_read(tmp_path: Path, is_linked: bool) -> None:
    site, elsewhere = make_environment(tmp_path / "site"), tmp_path / "elsewhere"
    own = tmp_path / "libcufile.so.0"
    compile_library(own, "int cuFileOpen(void) { return 0; }", own.name, "")
    uses = "int cuFileOpen(void); int f(void) { return cuFileOpen(); }"
    (elsewhere / "sgl_kernel").mkdir(parents=True)
    compile_library(elsewhere / "sgl_kernel/ops.so", uses, "ops.so", "", own)
    if is_linked:
        (site / "sgl_kernel").symlink_to(elsewhere / "sgl_kernel")
    wanted = needs([site] if is_linked else [elsewhere, site])
    assert functions(wanted, own.name) == {"cuFileOpen": None}
    assert wanted.major == 13


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"\x7fELF" + b"\xff" * 500, b"INPUT(libcuda.so)"])
def test_a_file_that_is_no_library_is_passed_over(content: bytes, tmp_path: Path) -> None:
    site = make_environment(tmp_path / "site")
    before = needs([site])
    (site / "broken.so").write_bytes(content)
    assert needs([site]) == before


def test_a_library_cut_off_anywhere_is_no_traceback(tmp_path: Path) -> None:
    site = make_environment(tmp_path / "site")
    whole = (site / "torch" / "lib" / "libc10_cuda.so").read_bytes()
    for size in range(0, len(whole), 97):
        (site / "cut.so").write_bytes(whole[:size])
        needs([site])


def test_a_wheels_renamed_copy_of_the_runtime_is_stood_for_too(tmp_path: Path) -> None:
    """torchvision includes such a copy. A server that looks for a loaded libcudart may find it first."""
    site = make_environment(tmp_path / "site")
    before = functions(needs([site]), "libcudart.so.13")
    copy = tmp_path / "libcudart.faf08d9a.so.13"
    compile_library(copy, "int cudaGetDevice(void) { return 0; }", copy.name, "libcudart.so.13")
    source = "int cudaGetDevice(void); int f(void) { return cudaGetDevice(); }"
    compile_library(site / "image.so", source, "image.so", "", copy)
    wanted = needs([site])
    assert functions(wanted, copy.name) == {"cudaGetDevice": "libcudart.so.13"}
    assert functions(wanted, "libcudart.so.13") == before


def test_no_torch_and_a_torch_without_cuda_are_one_line(tmp_path: Path) -> None:
    for says in ("has no torch", r"has a torch without CUDA \(libc10_cuda.so is missing\)"):
        with pytest.raises(NoCuda, match=says) as found:
            needs([tmp_path])
        assert "\n" not in str(found.value)
        (tmp_path / "torch" / "lib").mkdir(parents=True, exist_ok=True)


def test_what_a_library_gives_to_others_is_read() -> None:
    there = exported(built() / "libghost.so")
    assert {"cudaMalloc", "cuMemAlloc_v2", "ncclAllReduce", "ghost_mark", "__isoc23_strtol"} <= there
    assert "device_malloc" not in there
