"""How rows travel to the ranks that hold their experts, and which way a server uses."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch

from runtime.forward.comm import Communicator
from runtime.forward.dp_attention import dp_buffer_len, gather, pad_rows, scatter
from runtime.moe.a2a_workspace import A2AWorkspace, max_dispatch_tokens
from runtime.moe.weights import TopK
from runtime.server.backends import backend_row
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.errors import ConfigError

Route = Callable[[torch.Tensor], TopK]


class Dispatcher(ABC):
    # Whether each rank runs the whole shared experts on its own rows.
    replicates_shared_experts: ClassVar[bool]

    @abstractmethod
    def dispatch(self, x: torch.Tensor, route: Route) -> tuple[torch.Tensor, TopK]:
        """Turn this rank's rows into the rows that its experts work on, with the experts of each row."""

    @abstractmethod
    def combine(self, out: torch.Tensor, rows: int) -> torch.Tensor:
        """Turn the experts' partial sums into this rank's finished rows."""


class StandardDispatcher(Dispatcher):
    """Every rank sees every row: rows are gathered under DP attention, and summed over the TP group after."""

    replicates_shared_experts = False

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm

    def dispatch(self, x: torch.Tensor, route: Route) -> tuple[torch.Tensor, TopK]:
        rows = gather(x, self.comm)
        return rows, route(rows)

    def combine(self, out: torch.Tensor, rows: int) -> torch.Tensor:
        return scatter(out, rows, self.comm)


class AllToAllDispatcher(Dispatcher):
    """FlashInfer's one-sided all-to-all: one workspace, made once, with fixed slots for every source rank.

    Each TP rank sends its own part of its attention group's rows. Our communicator moves the same bytes to
    the same slots. Slots without a token name an expert that no rank holds.
    """

    replicates_shared_experts = True

    def __init__(
        self,
        comm: Communicator,
        workspace: A2AWorkspace,
        dtype: torch.dtype,
        device: torch.device,
        invalid_expert: int,
    ) -> None:
        self.comm, self.workspace, self.dtype, self.invalid_expert = comm, workspace, dtype, invalid_expert
        self.memory = torch.empty(workspace.total_bytes, dtype=torch.uint8, device=device)

    def dispatch(self, x: torch.Tensor, route: Route) -> tuple[torch.Tensor, TopK]:
        slots, size = self._slots(x.shape[0]), self.workspace
        size.check(slots)
        rank, ranks = self.comm.rank("attn_tp"), self.comm.size("attn_tp")
        part = pad_rows(x, slots * ranks)[rank * slots : (rank + 1) * slots]
        topk = route(part)
        topk.ids[max(0, x.shape[0] - rank * slots) :].fill_(self.invalid_expert)
        total = slots * size.ep_size
        rows = self._view(0, total, size.hidden_size, self.dtype)
        ids = self._view(rows.nbytes, total, size.top_k, torch.int32)
        weights = self._view(rows.nbytes + ids.nbytes, total, size.top_k, torch.float32)
        for slot, own in ((rows, part), (ids, topk.ids), (weights, topk.weights)):
            self.comm.all_gather_into(slot, own, "moe_ep")
        return rows, TopK(ids, weights, topk.logits)

    def combine(self, out: torch.Tensor, rows: int) -> torch.Tensor:
        answers = self._view(self.workspace.dispatch_bytes, out.shape[0], out.shape[1], self.dtype)
        self.comm.all_to_all_into(answers, out, "moe_ep")
        part = answers.view(self.workspace.ep_size, -1, out.shape[1]).sum(dim=0)
        if self.comm.size("attn_tp") == 1:
            return part[:rows]
        local = part.new_empty(part.shape[0] * self.comm.size("attn_tp"), part.shape[1])
        self.comm.all_gather_into(local, part, "attn_tp")
        return local[:rows]

    def _slots(self, rows: int) -> int:
        """Return the slots per source rank. All ranks get the same number, so that offsets agree."""
        counts = dp_buffer_len().global_num_tokens_cpu
        return -(-(rows if counts is None else max(counts)) // self.comm.size("attn_tp"))

    def _view(self, offset: int, rows: int, width: int, dtype: torch.dtype) -> torch.Tensor:
        """Return a part of the workspace, `offset` bytes after the bookkeeping."""
        start = self.workspace.bookkeeping_bytes + offset
        return self.memory[start : start + rows * width * dtype.itemsize].view(dtype).view(rows, width)


def make_dispatcher(
    model: ModelConfig, runtime: RuntimeConfig, comm: Communicator, dtype: torch.dtype, device: torch.device
) -> Dispatcher:
    if runtime.kernels.a2a == "none" or model.moe is None:
        return StandardDispatcher(comm)
    if runtime.kernels.a2a != "flashinfer":
        raise ConfigError(f"--moe-a2a-backend {runtime.kernels.a2a}: this runtime has none and flashinfer")
    if comm.size("moe_tp") != 1:
        raise ConfigError(
            f"--moe-a2a-backend flashinfer needs whole experts on each rank: pass --ep {comm.size('tp')}, "
            "equal to --tp"
        )
    if model.moe.latent_size is not None:
        raise ConfigError(
            f"--moe-a2a-backend {runtime.kernels.a2a}: this runtime sends no latents between ranks: "
            "its experts work on rows of the hidden size here"
        )
    tokens = max_dispatch_tokens(runtime)
    workspace = A2AWorkspace(comm.size("moe_ep"), tokens, model.hidden_size, model.moe.top_k, dtype.itemsize)
    backend = backend_row(runtime.kernels.moe)
    invalid = -1 if backend.marks_with_minus_one else model.moe.num_experts
    return AllToAllDispatcher(comm, workspace, dtype, device, invalid)
