"""The flags of the way to a registry or a store, spelled alike on `push` and `pull`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from sgl_tune.cli.out import Output
from sgl_tune.cli.parameters import Option
from sgl_tune.cli.patience import timeout_option
from sgl_tune.deployment.completion import gpus
from sgl_tune.ship.remotes import How
from sgl_tune.units import human_bytes

PlainHttpOption = Annotated[
    bool, Option("--plain-http", help="oci: without TLS, of a registry on this machine alone.")
]
TimeoutOption = Annotated[
    float,
    timeout_option(
        "For an answer; and the least speed of a file: in this time 256 KiB must come (from a store 8 MiB),"
        " or 8 MiB go.",
        0.1,
        86400,
    ),
]
GpuOption = Annotated[
    str | None, Option("--gpu", metavar="NAME", help="The GPU it is for.", autocompletion=gpus)
]
PlatformOption = Annotated[
    str | None,
    Option("--platform", metavar="linux/amd64|linux/arm64", help="The processor it is for."),
]


@contextmanager
def way(out: Output, plain_http: bool, timeout: float, label: str) -> Iterator[How]:
    with out.progress(label) as line:

        def progress(what: str, done: int, total: int) -> None:
            line.advance(0, f"{what} {human_bytes(done)} of {human_bytes(total)}")
            if done == total:
                line.clear()

        def note(text: str) -> None:
            line.clear()
            out.note(text)

        def warn(text: str) -> None:
            line.clear()
            out.warn(text)

        yield How(plain_http, timeout, note, warn, progress)
