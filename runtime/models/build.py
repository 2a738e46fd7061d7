"""What every part of a decoder is built from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from runtime.forward.comm import Communicator
from runtime.layers.gated_rows import GatedRowNorm
from runtime.layers.linear import Linear, Part
from runtime.layers.norm import MeanNorm, RMSNorm, WideNorm
from runtime.layers.quantization import Scheme, quantized, scheme_of
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.errors import ConfigError
from runtime.server.formats.assigned import Quantized
from runtime.server.formats.kinds import Kind

RowNorm = RMSNorm | MeanNorm | GatedRowNorm
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Build:
    model: ModelConfig
    runtime: RuntimeConfig
    comm: Communicator
    device: torch.device
    dtype: torch.dtype
    quantized: Quantized

    def of_layer(self, layer_id: int) -> Build:
        """With its own experts, where those of layers differ."""
        if not self.model.expert_sizes:
            return self
        moe = self.model.layer_moe(layer_id)
        return replace(self, model=replace(self.model, moe=moe, expert_sizes=()))

    @property
    def method(self) -> str | None:
        """Of its weights, whatever of them that keeps plain."""
        return self.runtime.quantization or self.model.checkpoint_quantization

    @property
    def is_quantized(self) -> bool:
        return self.method is not None

    def linear(
        self,
        parts: list[Part],
        cols: slice,
        *,
        scheme: Scheme | None = None,
        bias: bool = False,
        adds_bias: bool = True,
        rows_over: int = 1,
        columns_over: int = 1,
        is_one: bool = False,
        kept_as: tuple[int, ...] = (),
        any_rows: bool = False,
        spare: int = 0,
    ) -> Linear:
        chosen = self.scheme_of(parts) if scheme is None else scheme
        if self.model.names.by_columns:
            parts = [replace(part, taken=torch.t) for part in parts]
        return Linear(
            parts,
            cols,
            self.dtype,
            self.device,
            scheme=chosen,
            bias=bias,
            adds_bias=adds_bias,
            rows_over=rows_over,
            columns_over=columns_over,
            is_one=is_one,
            kept_as=kept_as,
            any_rows=any_rows,
            spare=spare,
        )

    def scheme_of(self, parts: list[Part]) -> Scheme:
        """What the checkpoint excludes from its quantization is plain."""
        return self._scheme(self.kind_of([part.name for part in parts]))

    def kind_of(self, names: list[str]) -> Kind | None:
        return self.quantized.of_linear(self.model.names.listed(names))

    def expert_scheme(self, name: str, hidden: int, inner: int) -> Scheme:
        return self._scheme(self.quantized.of_experts(name), (hidden, inner))

    def head_scheme(self) -> Scheme:
        return self._scheme(self.quantized.of_head(self.model.names.the_head))

    def _scheme(self, kind: Kind | None, experts: tuple[int, int] | None = None) -> Scheme:
        return scheme_of(kind, self.model, self.runtime, self.device.type != "meta", experts)

    def norm(
        self,
        name: str,
        size: int,
        eps: float | None = None,
        rows: slice | None = None,
        whole: bool = False,
    ) -> RMSNorm:
        """`whole`: its weights are told as they are."""
        eps = self.model.rms_eps if eps is None else eps
        is_centred = self.model.centred_norms and not whole
        made = WideNorm if self.model.wide_norms else RMSNorm
        return made(name, size, eps, self.dtype, self.device, rows, is_centred)

    def gated_norm(
        self, name: str, size: int, eps: float | None = None, whole: bool = False
    ) -> RMSNorm | GatedRowNorm:
        """Where the model's have gates: of rows, and of latents."""
        gates = self.model.norm_gates
        if gates is None:
            return self.norm(name, size, eps, whole=whole)
        own = self.model.rms_eps if eps is None else eps
        return GatedRowNorm(name, size, own, gates, self.dtype, self.device)

    def norm_of_rows(self, name: str, eps: float | None = None, whole: bool = False) -> RowNorm:
        """Of whole rows, between layers."""
        size = self.model.hidden_size
        if self.model.mean_norms:
            has = self.model.norm_biases, not self.model.bare_norms
            return MeanNorm(name, size, self.model.rms_eps, self.dtype, self.device, *has)
        norm = self.gated_norm(name, size, eps, whole=whole)
        if isinstance(norm, WideNorm):
            norm.groups = self.model.norm_groups
        return norm


def make_build(model: ModelConfig, runtime: RuntimeConfig, comm: Communicator, device: torch.device) -> Build:
    if runtime.dtype not in DTYPES:
        raise ConfigError(f"--dtype {runtime.dtype}: one of {', '.join(DTYPES)}")
    return Build(model, runtime, comm, device, DTYPES[runtime.dtype], quantized(model, runtime))
