"""Which CUDA graphs a server captures: of decode batches, and of prefills by their tokens."""

from __future__ import annotations

from runtime.server.choices import Choices


def settle_graph_backends(c: Choices) -> None:
    """What was asked for is locked: the rules that follow leave it."""
    if c.disable_cuda_graph:
        for phase in (c.decode, c.prefill):
            phase.backend, phase.locked = "disabled", True
    c.decode.max_bs = c.cuda_graph_max_bs
    if c.disaggregation_mode == "prefill" and not c.decode.locked:
        c.decode.backend = "disabled"
    if c.disaggregation_mode == "decode" and not c.prefill.locked:
        c.prefill.backend = "disabled"


def settle_graph_sizes(c: Choices) -> None:
    assert c.decode.max_bs is not None
    if c.decode.sizes is None:
        c.decode.sizes = decode_graph_sizes(c.decode.max_bs, c.speculative_algorithm is not None)
    if c.prefill.max_bs is None:
        c.prefill.max_bs = min(8192, c.chunked_prefill_size) if c.model.is_mla else c.chunked_prefill_size
    if c.prefill.sizes is None:
        c.prefill.sizes = prefill_graph_sizes(c.prefill.max_bs)


def decode_graph_sizes(max_bs: int, speculative: bool = False) -> tuple[int, ...]:
    if speculative:
        sizes = [
            *range(1, 9),
            *range(10, 33, 2),
            *range(40, 65, 4),
            *range(72, 257, 8),
            *range(272, max_bs + 1, 16),
        ]
    else:
        sizes = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, max_bs + 1, 32)]
    return tuple(sorted({size for size in sizes if size <= max_bs} | {max_bs}))


def prefill_graph_sizes(max_tokens: int) -> tuple[int, ...]:
    sizes = [
        *range(4, 33, 4),
        *range(48, 257, 16),
        *range(288, 513, 32),
        *range(576, 1025, 64),
        *range(1280, 4097, 256),
        *range(4608, max_tokens + 1, 512),
    ]
    return tuple(size for size in sizes if size <= max_tokens)
