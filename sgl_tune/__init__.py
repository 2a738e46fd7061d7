"""sgl-tune: ship tuned FlashInfer caches, and know an SGLang start before it happens."""


def __getattr__(name: str) -> str:
    # On demand: importing importlib.metadata takes half of the time that `sgl-tune --help` may take.
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("sgl-tune")
    except PackageNotFoundError:  # a checkout that was never installed
        return "0+unknown"
