"""`sgl-tune env`: this machine's fingerprint, for `verify --target` elsewhere."""

from __future__ import annotations

from sgl_tune.cli.format import Format, FormatOption, QuietOption, sink
from sgl_tune.cli.out import Output
from sgl_tune.deployment.env import Fingerprint, as_json, take_fingerprint


def env(format: FormatOption = Format.human, quiet: QuietOption = False) -> None:
    """Show what FlashInfer would write into a cache file here, and what else tells machines apart.

    Takes a few seconds: it imports torch and FlashInfer to ask them.

    Example: sgl-tune env --format json > env.json
    """
    out = Output(sink(format, quiet))
    out.note("Asking torch and FlashInfer; importing them takes a few seconds.")
    fingerprint = take_fingerprint()
    out.result(
        as_json(fingerprint),
        human=lambda: _show(out, fingerprint),
        quiet=(f"{name}={value}" for name, value in (fingerprint.metadata or {}).items()),
    )
    for what in fingerprint.unknown:
        out.warn(f"not known: {what}")


def _show(out: Output, fingerprint: Fingerprint) -> None:
    out.line("What FlashInfer compares", style="bold")
    compared = {name: value.replace(";", "; ") for name, value in (fingerprint.metadata or {}).items()}
    out.fields(compared or {"nothing": "FlashInfer cannot be asked here"})
    out.line("What it does not", style="bold")
    gpus = {
        f"gpu {number}": f"{gpu.name}, {gpu.arch}, {gpu.mib} MiB, {gpu.uuid}"
        for number, gpu in enumerate(fingerprint.gpus)
    }
    out.fields(
        {
            "driver": fingerprint.driver,
            "arch": fingerprint.arch,
            "torch": fingerprint.torch,
            "sglang": fingerprint.sglang,
            **gpus,
        }
    )
