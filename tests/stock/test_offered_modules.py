"""FlashInfer's own loader takes the modules of a moved root, without ninja and without a compiler."""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from flashinfer.jit import env as jit_env
from flashinfer.jit.core import JitSpecNvcc

from tests.sgl_tune.running import run_here
from tests.sgl_tune.stores import make

_INSTALLED = """
from types import SimpleNamespace
from ._build_meta import __version__
def get_jit_cache_dir():
    return "{folder}/theirs"
def get_jit_cache_providers():
    return [SimpleNamespace(
        provider_id="sm90a", distribution="flashinfer-jit-cache-sm90a", version=__version__,
        jit_cache_dir="{folder}/theirs", cuda_architectures=["sm90a"], modules=["sampling"])]
"""


pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a compiler to make a library")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("library") / "norm.so"
    subprocess.run(["gcc", "-shared", "-o", path, "-x", "c", "/dev/null"], check=True, timeout=60)
    return path


@pytest.fixture
def root(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copied elsewhere, its times lost, and then made right for its place."""
    make.flashinfer_module(tmp_path / "made/.cache/flashinfer", "norm")
    next((tmp_path / "made").rglob("norm.so")).write_bytes(library.read_bytes())
    shutil.copytree(tmp_path / "made", tmp_path / "moved", copy_function=shutil.copyfile)
    shutil.rmtree(tmp_path / "made")
    assert run_here("relocate", tmp_path / "moved").code == 0
    monkeypatch.setenv("FLASHINFER_CUDA_ARCH_LIST", "9.0a")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("FLASHINFER_DISABLE_JIT", "1")
    monkeypatch.syspath_prepend(tmp_path / "moved/flashinfer-aot")
    monkeypatch.delitem(sys.modules, "flashinfer_jit_cache", raising=False)
    return tmp_path / "moved"


def _spec(name: str) -> JitSpecNvcc:
    return JitSpecNvcc(name, [], None, None, None, None)


def test_a_moved_module_is_loaded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit_env, "FLASHINFER_AOT_PROVIDERS", jit_env._get_aot_providers())
    spec = _spec("norm")
    assert spec.build_and_load() is not None
    assert spec.get_library_path() == root / ".cache/flashinfer/0.7.2/90a/cached_ops/norm/norm.so"
    assert not _spec("other").is_aot


def test_another_gpu_or_another_cuda_is_offered_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit_env, "FLASHINFER_AOT_PROVIDERS", jit_env._get_aot_providers())
    monkeypatch.setenv("FLASHINFER_CUDA_ARCH_LIST", "10.0a")
    assert not _spec("norm").is_aot
    offer = root / "flashinfer-aot/flashinfer_jit_cache/offer.json"
    told = json.loads(offer.read_text())
    told["modules"]["0.7.2/90a"]["cuda"] = "99"
    offer.write_text(json.dumps(told))
    monkeypatch.delitem(sys.modules, "flashinfer_jit_cache")
    assert jit_env._get_aot_providers() == ()


def test_an_installed_package_is_asked(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "installed/flashinfer_jit_cache"
    make.write(package / "_build_meta.py", "__version__ = '0.7.2+cu130'\n")
    make.write(package / "__init__.py", _INSTALLED.format(folder=tmp_path))
    make.write(tmp_path / "theirs/sampling/sampling.so", make.LIBRARY)
    monkeypatch.syspath_prepend(tmp_path / "installed")
    monkeypatch.syspath_prepend(root / "flashinfer-aot")
    monkeypatch.setattr(jit_env, "FLASHINFER_AOT_PROVIDERS", jit_env._get_aot_providers())
    assert _spec("norm").get_library_path().is_relative_to(root)
    assert _spec("sampling").get_library_path() == tmp_path / "theirs/sampling/sampling.so"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    both = Path(sys.modules["flashinfer_jit_cache"].get_jit_cache_dir())
    assert (both / "norm/norm.so").resolve().is_relative_to(root)
    assert (both / "sampling/sampling.so").resolve() == tmp_path / "theirs/sampling/sampling.so"
    both.chmod(0o777)
    assert sys.modules["flashinfer_jit_cache"].get_jit_cache_dir() == f"{tmp_path}/theirs"
