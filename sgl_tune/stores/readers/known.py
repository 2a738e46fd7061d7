"""All readers. A folder of unknown name is the first one's that takes it for its own."""

from __future__ import annotations

from sgl_tune.stores.readers.cubins import FlashInferCubins
from sgl_tune.stores.readers.cute_dsl import CuteDsl
from sgl_tune.stores.readers.deep_gemm import DeepGemm
from sgl_tune.stores.readers.driver import Driver
from sgl_tune.stores.readers.flashinfer_jit import FlashInferModules
from sgl_tune.stores.readers.halves import HostHalves
from sgl_tune.stores.readers.inductor import Inductor
from sgl_tune.stores.readers.reader import Reader
from sgl_tune.stores.readers.tilelang import TileLang
from sgl_tune.stores.readers.triton import Triton
from sgl_tune.stores.readers.tvm_ffi import TvmFfi

READERS: tuple[Reader, ...] = (
    FlashInferModules(),
    FlashInferCubins(),
    HostHalves(),
    Triton(),
    Inductor(),
    DeepGemm(),
    CuteDsl(),
    TileLang(),
    TvmFfi(),
    Driver(),
)
BY_STORE = {reader.store: reader for reader in READERS}
