"""Experts and the router that chooses among them, of one layer or of several."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.models.experts import Experts
from runtime.moe.router import Router
from runtime.moe.weights import ExpertWeights


@dataclass(slots=True)
class Bank:
    """Of one module, made by the first layer that has it."""

    name: str
    router: Router | None = None
    experts: Experts | None = None
    weights: ExpertWeights | None = None


class Banks:
    """Those of a stage that layers share."""

    def __init__(self) -> None:
        self._known: dict[str, Bank] = {}

    def of(self, name: str) -> Bank:
        return self._known.setdefault(name, Bank(name))
