"""FlashInfer's kernels from NVIDIA's server: used if they are on this machine, never downloaded."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from runtime.ghost.inside.hooks import after, around
from runtime.ghost.inside.stream import say

# The content of a kernel that is loaded and launched on the ghost: any bytes do.
NO_KERNEL = b"ghost"
LOADER = "flashinfer.jit.cubin_loader"
METAINFO = "flashinfer.jit.trtllm_gen_metainfo"
_asked: set[str] = set()


@after(LOADER)
def _loader(module: Any) -> None:
    load = module.load_cubin

    def get_artifact(file_name: str, sha256: str = "", session: Any = None) -> bytes:
        path = str(module.FLASHINFER_CUBIN_DIR / file_name)
        found = load(path, sha256)
        if file_name not in _asked:
            _asked.add(file_name)
            say("file", store="flashinfer cubins", path=path, found=bool(found))
        return found or NO_KERNEL

    module.get_artifact = module.get_cubin = get_artifact
    module.download_file = _refuse
    for name in ("ensure_symlink", "verify_symlinked_headers"):  # of headers, for a compiler
        if hasattr(module, name):
            setattr(module, name, lambda *args, **kwargs: None)


def _refuse(source: str, *args: Any, **kwargs: Any) -> bool:
    say("file", store="download", path=source, found=False)
    return False


@around(LOADER, "get_meta_hash")
def _hash(real: Any, checksums: bytes, *args: Any, **kwargs: Any) -> Any:
    return "0" * 64 if checksums == NO_KERNEL else real(checksums, *args, **kwargs)


@around(LOADER, "setup_cubin_loader")
def _setup(real: Any, path: str) -> None:
    with suppress(OSError, AttributeError):  # the file of a module that was not built
        real(path)


@around(METAINFO, "filter_metainfo")
def _filter(real: Any, text: Any = "", *args: Any, **kwargs: Any) -> Any:
    return text if text in (NO_KERNEL, NO_KERNEL.decode()) else real(text, *args, **kwargs)


@after(METAINFO)
def _write_none(module: Any) -> None:
    module.write_filtered_metainfo = lambda *args, **kwargs: None
