"""A CUDA toolkit is found where FlashInfer finds one, or where pip put it; what would fail is refused."""

import os
import shutil
from pathlib import Path

import pytest

from sgl_tune.compile.toolkit import find_tool, find_toolkit, pip_command
from sgl_tune.errors import UsageError
from tests.programs import program

PROGRAM = "echo 'Cuda compilation tools, release {release}, V{release}.88'\necho '#$ TOP={home}'"
HEADERS = ("cuda_runtime.h", "crt/host_config.h", "cublasLt.h")
needs_cxx = pytest.mark.skipif(shutil.which("c++") is None, reason="c++ is not installed")


def toolkit(home: Path, release: str = "13.0", headers: str = "13000", library: str = "lib64") -> Path:
    for name in ("bin/nvcc", "bin/ptxas", "bin/cudafe++", "bin/fatbinary", "nvvm/bin/cicc"):
        program(home / name, PROGRAM.format(release=release, home=home))
    for name in HEADERS:
        (home / "include" / name).parent.mkdir(parents=True, exist_ok=True)
        (home / "include" / name).touch()
    (home / "include/cuda_runtime_api.h").write_text(f"#define CUDART_VERSION  {headers}\n")
    (home / library).mkdir()
    (home / library / ("libcudart.so" if library == "lib64" else "libcudart.so.13")).touch()
    return home


def test_the_one_that_is_named_is_taken_as_it_is(tmp_path: Path) -> None:
    home = toolkit(tmp_path / "cuda")
    found = find_toolkit({"CUDA_HOME": str(home)}, ["cublasLt.h"])
    assert (found.home, found.release, found.links) == (home, "13.0", None)
    assert found.environment({}) == {"CUDA_HOME": str(home)}


def test_a_script_on_the_path_says_where_its_toolkit_is(tmp_path: Path) -> None:
    home = toolkit(tmp_path / "cuda")
    script = program(tmp_path / "bin/nvcc", f'exec {home}/bin/nvcc "$@"')
    assert find_toolkit({"PATH": f"{script.parent}:{os.defpath}"}).home == home


@needs_cxx
def test_libraries_of_pip_get_the_names_for_a_linker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = toolkit(tmp_path / "site-packages/nvidia/cu13", library="lib")
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    first, again = find_toolkit({"PATH": ""}), find_toolkit({"PATH": ""})
    assert first == again and first.home == home and first.links is not None
    assert (first.links / "libcudart.so").resolve() == home / "lib/libcudart.so.13"
    assert (first.links / "libcuda.so").stat().st_size > 0
    flags = first.environment({"FLASHINFER_EXTRA_LDFLAGS": "-lfoo"})["FLASHINFER_EXTRA_LDFLAGS"]
    assert flags == f"-L{first.links} -lfoo"


@pytest.mark.parametrize(
    ("spoil", "says"),
    [("include/cublasLt.h", "has no include/cublasLt.h"), ("nvvm/bin/cicc", "has no nvvm/bin/cicc")],
)
def test_what_is_missing_is_said_with_what_brings_it(tmp_path: Path, spoil: str, says: str) -> None:
    home = toolkit(tmp_path / "cuda", "12.9", "12090")
    (home / spoil).unlink()
    with pytest.raises(UsageError) as error:
        find_toolkit({"CUDA_HOME": str(home)}, ["cublasLt.h"])
    assert says in error.value.message and error.value.remedy == pip_command("12.9")
    command = pip_command("12.9")
    assert "'nvidia-cuda-nvcc==12.9.*'" in command and "nvidia-curand==10.3.10.*" in command


def test_a_mixture_of_releases_is_refused(tmp_path: Path) -> None:
    home = toolkit(tmp_path / "site/nvidia/cu13", headers="13050")
    with pytest.raises(UsageError, match=r"nvcc is of 13\.0, its headers of 13\.5"):
        find_toolkit({"CUDA_HOME": str(home)})
    (home / "include/cuda_runtime_api.h").write_text("#define CUDART_VERSION 13000\n")
    (tmp_path / "site/nvidia_nvvm-13.5.37.dist-info").mkdir()
    with pytest.raises(UsageError, match=r"nvidia-nvvm of 13\.5") as error:
        find_toolkit({"CUDA_HOME": str(home)})
    assert error.value.remedy == pip_command("13.0")


def test_a_program_that_is_not_there_is_said() -> None:
    with pytest.raises(UsageError, match="no-such-program is not here"):
        find_tool("no-such-program", {"PATH": ""})
