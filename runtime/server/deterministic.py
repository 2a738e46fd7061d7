"""Inference whose results do not depend on the batch: on fewer attention kernels."""

from __future__ import annotations

from runtime.server.choices import Choices
from runtime.server.errors import ConfigError


def settle_deterministic(c: Choices) -> None:
    if c.rl_on_policy_target is not None:
        c.settle("--rl-on-policy-target", enable_deterministic_inference=True)
    if not c.enable_deterministic_inference:
        return
    absorbed = c.model.architecture in c.release.absorbed_mla
    if c.attention_backend is None:
        on_blackwell = "triton" if absorbed else "flashinfer"
        backend = on_blackwell if c.gpu.major in (10, 12) else "fa3"
        c.settle("deterministic inference", attention_backend=backend)
    _check(c, absorbed)
    if c.attention_backend not in c.release.deterministic_prefixes:
        c.settle("deterministic inference", disable_radix_cache=True)


def _check(c: Choices, absorbed: bool) -> None:
    possible = c.release.absorbed_deterministic if absorbed else c.release.deterministic_backends
    backend = c.attention_backend
    if backend not in possible or backend not in c.release.deterministic_backends:
        raise ConfigError(
            f"attention backend {backend} is not deterministic for {c.model.architecture}",
            tries=(*({"attention_backend": name} for name in possible), "enable_deterministic_inference"),
        )
    if absorbed and backend == "fa4" and c.gpu.major != 10:
        raise ConfigError(
            "MLA on fa4 is deterministic on sm100 only", tries=({"attention_backend": "triton"},)
        )
