"""The batches that CUDA graphs are captured for: requests of a decode step, tokens of a prefill."""

from __future__ import annotations

from runtime.server.architectures import GLM_5_NEXT
from runtime.server.choices import Choices
from runtime.server.traits import is_mla

_PIPELINE_TOP, _LLAMA_2_TOP = 8192, 4096
_CHUNK = "as large as a prefill chunk"


def settle_graph_sizes(c: Choices) -> None:
    _settle_decode(c)
    _settle_prefill(c)


def fit_prefill_graphs(c: Choices) -> None:
    """To a chunk that became smaller."""
    prefill = c.prefill
    if not c.release.fits_prefill_graphs or not prefill.is_on or "max_bs" in prefill.locked:
        return
    assert prefill.max_bs is not None
    if prefill.max_bs > c.chunked_prefill_size:
        prefill.max_bs, prefill.limit = c.chunked_prefill_size, _CHUNK
        if "sizes" not in prefill.locked:
            prefill.sizes = prefill_graph_sizes(prefill.max_bs)


def captured(c: Choices) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Decode batches and prefills, in the end."""
    decode = c.decode.sizes if c.decode.is_on else ()
    prefill = c.prefill.sizes if c.prefill.is_on else ()
    return tuple(sorted(decode or ())), tuple(sorted(prefill or ()))


def decode_graph_sizes(max_bs: int, speculative: bool = False, padded: bool = True) -> tuple[int, ...]:
    if not padded:
        sizes = [*range(1, max_bs + 1)]
    elif speculative:
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


def _settle_decode(c: Choices) -> None:
    decode = c.decode
    assert decode.max_bs is not None
    if decode.sizes is None:
        speculative = c.speculative_algorithm is not None
        decode.sizes = decode_graph_sizes(decode.max_bs, speculative, not c.disable_cuda_graph_padding)
    else:
        decode.max_bs = max(decode.sizes)


def _settle_prefill(c: Choices) -> None:
    prefill = c.prefill
    if prefill.max_bs is None:
        prefill.max_bs, prefill.limit = min(_prefill_caps(c))
    context = c.context_length
    if c.release.context_caps_prefill_graphs and context is not None and context < prefill.max_bs:
        prefill.max_bs, prefill.limit = context, "as large as --context-length"
    if prefill.sizes is None:
        prefill.sizes = prefill_graph_sizes(prefill.max_bs)


def _prefill_caps(c: Choices) -> list[tuple[int, str]]:
    """Each with what caps there: the lowest counts."""
    caps = []
    top = c.release.glm_5_next_prefill_graph_top
    if top is not None and c.model.architecture in GLM_5_NEXT and c.prefill.backend == "breakable":
        return [(top, "as large as GLM-5.3 takes")]
    if is_mla(c):
        caps.append((c.release.mla_prefill_graph_top, "as large as latent attention takes"))
    if not is_mla(c) or c.release.mla_prefill_graphs_fit_chunk:
        caps.append((c.chunked_prefill_size, _CHUNK))
    if c.release.caps_pipelined_prefill_graphs and _is_pipelined(c):
        caps.append((_PIPELINE_TOP, "as large as pipeline parallelism takes"))
    if c.max_total_tokens is not None:
        caps.append((c.max_total_tokens, "as large as --max-total-tokens"))
    if "llama-2" in c.model_path.lower():
        caps.append((_LLAMA_2_TOP, "as large as Llama 2 takes"))
    return caps


def _is_pipelined(c: Choices) -> bool:
    return c.pp_size > 1 and c.prefill.backend == "breakable" and "sizes" not in c.prefill.locked
