"""The base of all graph runners: capture one graph per size, replay the smallest that holds the batch."""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from runtime.decoder.decoder import Decoder, StageState
from runtime.devices.base import Device, Graph
from runtime.forward.batch import ForwardBatch, StaticBuffers
from runtime.forward.comm import Communicator
from runtime.forward.dp_attention import DpTokens, RunnerKind, plan_dp_tokens
from runtime.forward.kv_pool import KVPool
from runtime.forward.logits_processor import logits_wanted
from runtime.server.config import RuntimeConfig
from runtime.server.parallel import ParallelConfig

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class CaptureSite:
    """What the graph runners of one rank share. With `ascending` the smallest size is captured first; then no
    graph can use the memory of an earlier one, because each is larger than those before."""

    device: Device
    parallel: ParallelConfig
    runtime: RuntimeConfig
    comm: Communicator
    context_length: int
    pool: Any
    ascending: bool = False

    @property
    def torch_device(self) -> torch.device:
        return self.device.torch_device


class GraphRunner(ABC):
    """Captures and replays graphs. `sizes` count requests of `width` tokens each, or a prefill's tokens."""

    name: ClassVar[str]
    kind: ClassVar[RunnerKind]
    has_head = True  # the last stage's graphs include the LM head

    def __init__(
        self, site: CaptureSite, decoder: Decoder, kv: KVPool, sizes: Sequence[int], width: int = 1
    ) -> None:
        self.site, self.decoder, self.kv, self.width = site, decoder, kv, width
        self.sizes = sorted(sizes)
        self.graphs: dict[int, Graph] = {}
        largest = self.sizes[-1]
        self.inputs = StaticBuffers(
            self.requests(largest), self.tokens(largest), site.context_length, site.torch_device
        )
        self.outputs = self.make_outputs(largest)

    def requests(self, size: int) -> int:
        return size

    def tokens(self, size: int) -> int:
        return size * self.width

    @property
    def tokens_each(self) -> int:
        """Tokens per request, or 0 if requests differ."""
        return self.tokens(1) // self.requests(1)

    @property
    def pieces(self) -> int:
        """The number of CUDA graphs that one size takes."""
        return 1

    def size_of(self, batch: ForwardBatch) -> int:
        return batch.num_requests

    @abstractmethod
    def dummy_batch(self, size: int) -> ForwardBatch:
        """Return a batch of exactly this size that uses only the padding slot."""

    @abstractmethod
    def make_outputs(self, largest: int) -> Tensors:
        """Return one buffer per result, for the largest size; every graph writes its results there."""

    @abstractmethod
    def compute(self, batch: ForwardBatch) -> Tensors:
        """Run the forward to capture, and return its results under the names of `make_outputs`."""

    def room(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype or self.decoder.build.dtype, device=self.site.torch_device)

    @torch.inference_mode()
    def capture(self) -> None:
        with logits_wanted(f"capturing {self.name} graphs"):
            for size in sorted(self.sizes, reverse=not self.site.ascending):
                self.graphs[size] = self._capture(size)

    def _capture(self, size: int) -> Graph:
        batch = self._fill(self.dummy_batch(size), size)

        def run() -> Tensors:
            return {name: self._keep(name, result) for name, result in self.compute(batch).items()}

        self._claim()
        site = self.site
        return site.device.capture(run, site.pool, before=site.comm.barrier, name=f"{self.name} {size}")

    def _claim(self) -> None:
        """Count what the driver keeps of a graph besides its kernels: its pieces and its ranks' messages."""
        device, ranks = self.site.device, self.site.parallel.tp
        device.claim("graph", self.pieces)
        if ranks > 1:
            device.claim(f"nccl graph:{ranks}", self.pieces)
            # after attention and after the MLP of each layer, and one of the head's parts
            messages = 2 * len(self.decoder.layer_ids) + (self.has_head and self.decoder.is_last)
            device.claim(f"nccl message:{ranks}", messages)

    def _keep(self, name: str, result: torch.Tensor) -> torch.Tensor:
        return self.outputs[name][: result.shape[0]].copy_(result)

    def _fill(self, batch: ForwardBatch, size: int) -> ForwardBatch:
        padded = self.inputs.fill(batch, self.requests(size), self.tokens(size), self.tokens_each)
        return replace(padded, dp=self._dp_tokens(size))

    def _dp_tokens(self, size: int) -> DpTokens:
        return plan_dp_tokens(
            self.tokens(size),
            self.kind,
            self.site.parallel,
            moe_a2a_backend=self.site.runtime.kernels.a2a,
            requests=self.requests(size),
            device=self.site.torch_device,
        )

    @torch.inference_mode()
    def replay(self, batch: ForwardBatch) -> Tensors:
        """Replay the smallest graph that holds the batch. The next replay overwrites the buffers returned."""
        size = self.sizes[bisect_left(self.sizes, self.size_of(batch))]
        self._fill(batch, size)
        graph = self.graphs[size]
        graph.replay()
        return graph.outputs


class StageGraphs(GraphRunner):
    """Graphs of a whole pipeline stage. `state` is the previous stage's output; None on the first."""

    state: StageState | None

    def make_outputs(self, largest: int) -> Tensors:
        rows, decoder = self.tokens(largest), self.decoder
        self.state = None if decoder.is_first else decoder.empty_state(rows)
        return self.make_last_outputs(rows) if decoder.is_last else decoder.empty_state(rows).parts

    @abstractmethod
    def make_last_outputs(self, rows: int) -> Tensors:
        """Return buffers for the results of the last stage."""

    def state_of(self, rows: int) -> StageState | None:
        if self.state is None:
            return None
        return StageState(**{name: held[:rows] for name, held in self.state.parts.items()})
