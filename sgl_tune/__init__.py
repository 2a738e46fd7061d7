"""sgl-tune: ship tuned FlashInfer caches, and know an SGLang start before it happens."""


def __getattr__(name: str) -> str:
    # On demand: importlib.metadata is half of what `sgl-tune --help` may cost.
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("sgl-tune")
    except PackageNotFoundError:  # run from a checkout that was never installed
        return "0+unknown"
