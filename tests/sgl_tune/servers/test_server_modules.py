"""`server modules`: what a server has, what is taken from elsewhere, and what is built."""

import ctypes
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runtime.ghost import host_nvcc
from sgl_tune.compile.host_halves import MOST_MINUTES, minutes_of
from tests.ghost.small_library import library, needs_cc
from tests.sgl_tune.running import environment
from tests.sgl_tune.schemas import schema_faults
from tests.sgl_tune.servers.made import server

pytestmark = needs_cc


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return server(tmp_path / "venv")


def run(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    modules = ("-m", "sgl_tune", "server", "modules", "--server", str(tmp_path / "venv"))
    command = [sys.executable, *modules, *words]
    variables = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path / "home")}
    env = {**environment(), **variables}
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)


def told(tmp_path: Path, *words: str) -> dict[str, Any]:
    done = run(tmp_path, *words, "--format", "json")
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    assert not schema_faults("server", answer)
    return answer


def states(answer: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["state"] for one in answer["modules"]}


def refusal(tmp_path: Path, *words: str) -> str:
    done = run(tmp_path, *words)
    assert done.returncode == 2, done.stderr
    return done.stderr


def test_modules_are_listed_by_what_they_are(site: Path, tmp_path: Path) -> None:
    library(site / "flashinfer/data/aot/norm/norm.so")
    library(site / "flashinfer/data/aot/page/page.so").chmod(0o666)
    found = told(tmp_path)
    assert states(found) == {"fused_moe_90": "none", "norm": "real", "page": "refused"}
    assert "others may write" in next(one["why"] for one in found["modules"] if one["name"] == "page")
    assert states(told(tmp_path, "norm", "sampling")) == {"norm": "real", "sampling": "none"}


def test_modules_of_the_same_flashinfer_and_gpu_are_taken_from_a_cache(site: Path, tmp_path: Path) -> None:
    jit = tmp_path / "other/.cache/flashinfer"
    for place in ("0.7.2/90a", "0.7.2/100a", "0.7.1/90a"):
        name = f"norm_{place[4:].replace('/', '_')}"
        library(jit / place / "cached_ops" / name / f"{name}.so")
    found = told(tmp_path, "--from", str(tmp_path / "other"))
    assert found["taken"] == ["norm_2_90a"]
    assert states(found) == {"fused_moe_90": "none", "norm_2_90a": "half"}
    assert states(told(tmp_path)) == states(found)


def test_a_module_of_an_image_is_taken_by_its_package(site: Path, tmp_path: Path) -> None:
    image = tmp_path / "image/usr/lib/python3/dist-packages"
    library(image / "flashinfer_jit_cache/jit_cache/norm/norm.so")
    assert "has no module of FlashInfer 0.7.2" in refusal(tmp_path, "--from", str(tmp_path / "image"))
    (image / "flashinfer_jit_cache-0.7.2+cu130.dist-info").mkdir()
    assert told(tmp_path, "--from", str(tmp_path / "image"))["taken"] == ["norm"]


def test_a_file_is_taken_at_the_users_word(site: Path, tmp_path: Path) -> None:
    module = library(tmp_path / "downloads/norm.so")
    assert told(tmp_path, "--from", str(module))["taken"] == ["norm"]
    packed = told(tmp_path, "--to", str(tmp_path / "packed"))["packed"]
    assert packed == [str(tmp_path / "packed/norm.so.xz")]
    assert "1 file written to" in run(tmp_path, "norm", "--to", str(tmp_path / "packed")).stdout
    shutil.rmtree(tmp_path / "cache")
    assert states(told(tmp_path, "norm", "--from", packed[0])) == {"norm": "half"}
    (tmp_path / "downloads/text.so").write_text("text")
    assert "no 64-bit ELF" in refusal(tmp_path, "--from", str(tmp_path / "downloads/text.so"))
    module.chmod(0o666)
    assert "others may write" in refusal(tmp_path, "--from", str(module))


def test_halves_are_taken_from_what_unpack_wrote(site: Path, tmp_path: Path) -> None:
    told(tmp_path, "--from", str(library(tmp_path / "downloads/norm.so")))
    shutil.move(tmp_path / "cache/sgl-tune/halves", tmp_path / "unpacked/halves")
    shutil.copytree(tmp_path / "unpacked/halves/0.7.2/90", tmp_path / "unpacked/halves/0.7.1/90")
    assert states(told(tmp_path, "norm")) == {"norm": "none"}
    assert told(tmp_path, "--from", str(tmp_path / "unpacked"))["taken"] == ["norm"]
    assert states(told(tmp_path, "norm")) == {"norm": "half"}


def test_what_cannot_be_asked_is_one_sentence(site: Path, tmp_path: Path) -> None:
    assert "is not known" in refusal(tmp_path, "--gpu", "h900")
    assert "is not there" in refusal(tmp_path, "--from", str(tmp_path / "nothing"))
    assert "needs the names of modules" in refusal(tmp_path, "--build")


def test_a_fused_moe_is_too_much_to_build_and_a_small_module_is_not() -> None:
    assert minutes_of(248, 2) > MOST_MINUTES
    assert minutes_of(3, 1) <= MOST_MINUTES


KERNEL = """
#include <cuda_runtime.h>
template <typename T> __global__ void fill(T *at, T value) { at[threadIdx.x] = value; }
extern "C" int answer(int launches) {
    float *at = nullptr;
    if (launches) fill<float><<<1, 32>>>(at, 1.0f);
    return 42;
}
"""


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")
def test_an_object_of_kernels_is_built_without_their_gpu_code(tmp_path: Path) -> None:
    (tmp_path / "one.cu").write_text(KERNEL)
    lists = ("--generate-dependencies-with-compile", "-MF", tmp_path / "one.d")
    words = [*lists, "-gencode=arch=compute_90a,code=sm_90a"]
    words += ["--compiler-options=-fPIC", "-O3", "-c", tmp_path / "one.cu", "-o", tmp_path / "one.o"]
    ours = [sys.executable, "-I", host_nvcc.__file__, str(shutil.which("nvcc"))]
    done = subprocess.run([*ours, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "one.d").read_text() == f"{tmp_path / 'one.o'}:\n"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["one.cu", "one.d", "one.o"]
    undefined = subprocess.run(["nm", "-u", tmp_path / "one.o"], capture_output=True, text=True).stdout
    assert "device_stub" not in undefined
    names = ("cudaLaunchKernel", "__cudaPushCallConfiguration", "__cudaPopCallConfiguration")
    (tmp_path / "runtime.c").write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in names))
    objects = [tmp_path / "one.o", tmp_path / "runtime.c"]
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "one.so", *objects, "-lstdc++"], check=True)
    assert [ctypes.CDLL(str(tmp_path / "one.so")).answer(launches) for launches in (0, 1)] == [42, 42]


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")
def test_what_does_not_compile_fails_as_nvcc_would(tmp_path: Path) -> None:
    (tmp_path / "one.cu").write_text("nonsense\n")
    ours = [sys.executable, "-I", host_nvcc.__file__, str(shutil.which("nvcc"))]
    command = [*ours, "-c", tmp_path / "one.cu", "-o", tmp_path / "one.o"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and "nonsense" in done.stderr
    assert not (tmp_path / "one.o").exists()
