"""sgl-tune: ship tuned FlashInfer caches, and know an SGLang start before it happens."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("sgl-tune")
except PackageNotFoundError:  # run from a checkout that was never installed
    __version__ = "0+unknown"
