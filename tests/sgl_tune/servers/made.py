"""Environments as pip leaves them, with packages that hold nothing."""

import sys
from pathlib import Path

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
CUDA_13 = (
    "from typing import Optional\n__version__ = '2.11.0+cu130'\ncuda: Optional[str] = '13.0'\nhip = None\n"
)
NO_CUDA = "from typing import Optional\n__version__ = '2.11.0+cpu'\ncuda: Optional[str] = None\n"


def venv(folder: Path, version: str = VERSION) -> Path:
    """A venv of this very Python: its folder of packages."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python3").symlink_to(Path(sys.executable).resolve())
    home = Path(sys.executable).resolve().parent
    (folder / "pyvenv.cfg").write_text(f"home = {home}\nversion = {version}.7\n")
    packages = folder / f"lib/python{version}/site-packages"
    packages.mkdir(parents=True)
    return packages


def package(packages: Path, name: str, version: str, module: str = "") -> Path:
    """Its .dist-info folder."""
    info = packages / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text(f"{module or name}/__init__.py,,\n")
    (packages / (module or name)).mkdir(exist_ok=True)
    (packages / (module or name) / "__init__.py").write_text("")
    return info


def server(folder: Path, release: str = "0.5.17", torch: str = CUDA_13) -> Path:
    """A venv with SGLang, torch and FlashInfer: its folder of packages."""
    packages = venv(folder)
    package(packages, "sglang", release)
    package(packages, "flashinfer_python", "0.7.2", "flashinfer")
    package(packages, "torch", "2.11.0")
    (packages / "torch/version.py").write_text(torch)
    return packages
