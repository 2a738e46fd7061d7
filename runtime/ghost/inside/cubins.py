"""FlashInfer's kernels from NVIDIA's server: used if they are on this machine, never downloaded."""

from __future__ import annotations

from typing import Any

from runtime.ghost.inside.hooks import after
from runtime.ghost.inside.stream import say

# The content of a kernel that is loaded and launched on the ghost: any bytes do.
NO_KERNEL = b"ghost"
_asked: set[str] = set()


@after("flashinfer.jit.cubin_loader")
def _loader(module: Any) -> None:
    load = module.load_cubin

    def get_artifact(file_name: str, sha256: str = "", session: Any = None) -> bytes:
        path = str(module.FLASHINFER_CUBIN_DIR / file_name)
        found = load(path, sha256)
        if file_name not in _asked:
            _asked.add(file_name)
            say("file", store="flashinfer cubins", path=path, found=bool(found))
        return found or NO_KERNEL

    real_hash = module.get_meta_hash

    def get_meta_hash(checksums: bytes, *args: Any, **kwargs: Any) -> str:
        return "0" * 64 if checksums == NO_KERNEL else real_hash(checksums, *args, **kwargs)

    real_setup = module.setup_cubin_loader

    def setup_cubin_loader(path: str) -> None:
        try:
            real_setup(path)
        except (OSError, AttributeError):
            return  # the file of a module that was not built

    module.get_artifact = module.get_cubin = get_artifact
    module.get_meta_hash = get_meta_hash
    module.setup_cubin_loader = setup_cubin_loader
    module.download_file = _refuse
    for name in ("ensure_symlink", "verify_symlinked_headers"):  # of headers, for a compiler
        if hasattr(module, name):
            setattr(module, name, lambda *args, **kwargs: None)


def _refuse(source: str, *args: Any, **kwargs: Any) -> bool:
    say("file", store="download", path=source, found=False)
    return False


@after("flashinfer.jit.trtllm_gen_metainfo")
def _metainfo(module: Any) -> None:
    real = module.filter_metainfo

    def filter_metainfo(text: Any = "", *args: Any, **kwargs: Any) -> Any:
        if text in (NO_KERNEL, NO_KERNEL.decode()):
            return text
        return real(text, *args, **kwargs)

    module.filter_metainfo = filter_metainfo
    module.write_filtered_metainfo = lambda *args, **kwargs: None
