"""One of FlashInfer's compiled modules, and how FlashInfer is asked for it."""

from __future__ import annotations

from dataclasses import dataclass

Argument = str | int | bool


@dataclass(frozen=True, slots=True)
class Module:
    """`maker` is FlashInfer's own function, MODULE:NAME below `flashinfer.jit`; a word of its arguments that
    names a dtype stands for torch's. `headers` are CUDA's, beside those of its runtime."""

    name: str
    maker: str
    used_by: str
    arguments: tuple[Argument, ...] = ()
    headers: tuple[str, ...] = ()
