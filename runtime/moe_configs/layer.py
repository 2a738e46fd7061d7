"""SGLang's fused MoE made from a record: random weights, even and skewed routings, any choice of tiles."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from runtime.flashinfer.arguments import fill
from runtime.moe_configs.inside.places import CHOICE, LAYER, MOE_LOOKUP, Places
from runtime.moe_configs.inside.watch import OF_TOKENS
from runtime.moe_configs.search import PRESENT, Named
from runtime.record.layers import LayerCall

SEED, SKEWS = 20, (0.0, 0.5)  # standard deviations of an expert's popularity, in logits whose own is 1
_SCALE = 0.01  # keeps the answers of random bytes finite
_CONTEXTS = ("get_exec", "get_parallel", "get_global_server_args")
Forward = Callable[[], torch.Tensor]


class CannotRun(RuntimeError):
    """This server's SGLang has no layer that the recorded layer can be made with."""


class Settings:
    """Stands for the settings that SGLang's modules read: the record's arguments, of whatever group."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._arguments = arguments

    def __getattr__(self, name: str) -> Any:
        return self._arguments.get(name, self)

    def __bool__(self) -> bool:
        """A switch that the record does not have is off."""
        return False


class Layers:
    """One recorded layer on a device. Inside `under(choice)` its look-ups return that choice."""

    def __init__(self, call: LayerCall, here: Places, arguments: Mapping[str, Any], device: str) -> None:
        if call.unreplayable or here.layer is None or here.configs is None:
            raise CannotRun(call.unreplayable or f"the server here has no {LAYER}")
        self._here, self._device = here, torch.device(device)
        self._lookup = getattr(here.configs, MOE_LOOKUP)
        settings = Settings(arguments)
        for module, name in ((one, name) for one in here[:2] for name in _CONTEXTS):
            if hasattr(module, name):
                setattr(module, name, lambda: settings)
        if hasattr(here.layer, "get_tp_group"):
            here.layer.get_tp_group = lambda: Settings({"world_size": 1})
        self._sizes = {name: one["tensor"] for name, one in call.named.items() if _is_tensor(one)}
        self._named = {name: _plain(one) for name, one in call.named.items() if not _is_tensor(one)}
        self._named |= {name: self._made(name) for name in self._sizes if name not in OF_TOKENS}
        self._named["inplace"] = False  # a second forward of the same tokens must compute the same
        ep = arguments.get("ep_size")
        self._ranks = ep if self._named.get("filter_expert", True) and isinstance(ep, int) and ep > 0 else 1

    @property
    def experts(self) -> int:
        return int(self._sizes["w1"]["shape"][0])

    @property
    def top_k(self) -> int:
        return int(self._sizes["topk_ids"]["shape"][1])

    def batch(self, rows: int, turns: int) -> list[Forward]:
        """Return forwards of the same tokens, each with its own routing; even and skewed ones alternate."""
        random = torch.Generator(device="cpu").manual_seed(SEED + rows)
        tokens = self._empty("hidden_states", rows)
        if self._device.type != "meta":
            tokens.normal_()
        return [
            partial(self._forward, tokens, *self._routing(rows, SKEWS[turn % len(SKEWS)], random))
            for turn in range(turns)
        ]

    def present(self, rows: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the configurations that the server uses for this batch: first GEMM's and second's."""
        asked, real = [], getattr(self._here.layer, CHOICE)

        def choose(*args: Any, **named: Any) -> Any:
            answer = real(*args, **named)
            up, (down, _) = answer if named.get("return_down_config") else (answer, (None, None))
            asked.append((dict(up), dict(down or up)))
            return answer

        setattr(self._here.layer, CHOICE, choose)
        try:
            self.batch(rows, 1)[0]()
        finally:
            setattr(self._here.layer, CHOICE, real)
        return asked[0]

    @contextmanager
    def under(self, name: Named) -> Iterator[None]:
        if name is PRESENT:
            yield
            return

        def chosen(*args: Any, down_moe: bool = False, **_: Any) -> dict[int, Any]:
            return {1: (name.down if down_moe else name.up).entry()}

        setattr(self._here.configs, MOE_LOOKUP, chosen)
        try:
            yield
        finally:
            setattr(self._here.configs, MOE_LOOKUP, self._lookup)

    def _forward(self, tokens: torch.Tensor, weights: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        given = {"hidden_states": tokens, "topk_weights": weights, "topk_ids": ids}
        answer: torch.Tensor = getattr(self._here.layer, LAYER)(**{**self._named, **given})
        return answer

    def _routing(self, rows: int, skew: float, random: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Route over all ranks' experts. This rank's come first; rows of others are not computed here."""
        weights, ids = self._empty("topk_weights", rows), self._empty("topk_ids", rows)
        if self._device.type != "meta":
            everywhere = self.experts * self._ranks
            popular = skew * torch.randn(everywhere, generator=random)
            chosen = (torch.randn(rows, everywhere, generator=random) + popular).topk(self.top_k).indices
            ids.copy_(chosen.where(chosen < self.experts, torch.tensor(-1)))
            weights.fill_(1 / self.top_k)
        return weights, ids

    def _empty(self, name: str, rows: int) -> torch.Tensor:
        told = self._sizes[name]
        shape = (rows, *told["shape"][1:])
        return torch.empty(shape, dtype=getattr(torch, told["dtype"]), device=self._device)

    def _made(self, name: str) -> torch.Tensor:
        told = self._sizes[name]
        made = torch.empty_strided(
            told["shape"], told["stride"], dtype=getattr(torch, told["dtype"]), device=self._device
        )
        if self._device.type != "meta":
            fill(made, name, self.experts)
            if name.endswith("scale") and made.is_floating_point():
                made.fill_(_SCALE)
        return made


def _is_tensor(value: Any) -> bool:
    return isinstance(value, dict) and "tensor" in value


def _plain(value: Any) -> Any:
    """Turn the record's forms into arguments of a layer: scalars and lists, and shapes as tuples."""
    if isinstance(value, dict):
        ((kind, inner),) = value.items()
        return tuple(map(_plain, inner)) if kind == "tuple" else float(inner) if kind == "float" else inner
    return [_plain(one) for one in value] if isinstance(value, list) else value
