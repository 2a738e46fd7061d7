"""Findings about environments: the target's, a file's own, and their differences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sgl_tune.cache.loader import INDETERMINATE, Ignored, Mismatch
from sgl_tune.verify.entries import cut
from sgl_tune.verify.environment import ASK_THERE, Target
from sgl_tune.verify.findings import Finding, finding


def unknown_target_finding(target: Target) -> Finding:
    known = f"of the server only the GPU is known ({target.gpu})" if target.gpu else None
    return finding(
        "target-unknown",
        f"{known or 'no target is given'}: each file is judged as if the server matches the machine that"
        " tuned it",
    )


def ignored_finding(outcome: Ignored) -> Finding:
    if outcome.hard:
        return finding(
            "other-environment",
            f"tuned elsewhere ({_fields(outcome.hard)}): the server ignores the whole file, tunes, and never"
            " saves here, at this start and every later one",
        )
    return finding(
        "unknown-environment",
        f"its writer did not know its own environment ({_fields(outcome.soft)}): the server ignores the whole"
        " file, tunes, and replaces it",
    )


def unsaid_finding(names: Iterable[str], target: Target) -> Finding:
    named = " and ".join(names)
    message = f"the target does not say its {named}: whether the server loads the file is not known"
    return finding("target-silent", message, f"{ASK_THERE}; {target.origin} was written elsewhere")


def _fields(mismatches: Mapping[str, Mismatch]) -> str:
    return ", ".join(
        f"{name}: file {_short(m.saved)}, server {_short(m.current)}" for name, m in mismatches.items()
    )


def _short(value: Any) -> str:
    if value is None:
        return "says nothing"
    return cut(value if isinstance(value, str) else repr(value))


def other_driver(tuned_on: str | None, target: Target) -> list[Finding]:
    """Return a finding if the driver differs. FlashInfer does not record the driver, but the manifest
    does."""
    if tuned_on is None or target.driver in (None, *INDETERMINATE) or tuned_on == target.driver:
        return []
    message = f"tuned on driver {tuned_on}, the server has {target.driver}; FlashInfer does not compare them"
    return [finding("other-driver", message)]
