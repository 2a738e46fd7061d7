"""The words of a block of rows, by a target's head: srt/speculative/dflash_worker_v2.py."""

from __future__ import annotations

import torch

from runtime.forward.comm import Communicator
from runtime.layers.embedding import VocabTable
from runtime.layers.loading import length


class BlockWords:
    """The likeliest word of each row but a block's first, which is known. Every rank looks at its own part
    of the vocabulary; what it found of a row is then held beside what the others found."""

    def __init__(self, head: VocabTable, comm: Communicator, requests: int, width: int) -> None:
        self.head, self.comm, self.width = head, comm, width
        self.ranks, rows = comm.size("tp"), requests * (width - 1)
        self.words = self._ids(rows)
        if self.ranks > 1:
            self.best, self.places = head.weight.new_zeros(rows), self._ids(rows)
            self.all_best = head.weight.new_zeros(self.ranks * rows)
            self.all_places = self._ids(self.ranks * rows)
            self.likeliest, self.chosen = self._ids(1, rows), self._ids(1, rows)

    @property
    def gathers(self) -> int:
        return 2 if self.ranks > 1 else 0

    def __call__(self, hidden: torch.Tensor) -> None:
        rows = hidden.view(-1, self.width, hidden.shape[-1])[:, 1:].reshape(-1, hidden.shape[-1])
        weight = self.head.weight[: length(self.head.real)]
        logits = torch.matmul(rows.to(weight.dtype), weight.T)
        count = rows.shape[0]
        if self.ranks == 1:
            self.words[:count].copy_(logits.argmax(dim=-1))
            return
        best, places = self.best[:count], self.places[:count]
        torch.max(logits, dim=-1, out=(best, places))
        places.add_(self.head.rows.start)
        all_best, all_places = self.all_best[: self.ranks * count], self.all_places[: self.ranks * count]
        self.comm.all_gather_into(all_best, best, "tp")
        self.comm.all_gather_into(all_places, places, "tp")
        likeliest, chosen = self.likeliest[:, :count], self.chosen[:, :count]
        torch.argmax(all_best.view(self.ranks, count), dim=0, out=likeliest[0])
        torch.gather(all_places.view(self.ranks, count), 0, likeliest, out=chosen)
        self.words[:count].copy_(chosen.view(-1))

    def _ids(self, *shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=torch.int64, device=self.head.weight.device)
