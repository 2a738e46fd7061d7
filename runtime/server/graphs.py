"""The batches that CUDA graphs are captured for: requests of a decode step, tokens of a prefill."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, count, takewhile

from runtime.server.architectures import GLM_5_NEXT
from runtime.server.choices import Choices
from runtime.server.embedders import embeds
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
    decode = c.decode.sizes if c.decode.is_on and not embeds(c.model.architecture, c.asked) else ()
    prefill = c.prefill.sizes if c.prefill.is_on else ()
    return tuple(sorted(decode or ())), tuple(sorted(prefill or ()))


def decode_graph_sizes(max_bs: int, speculative: bool = False, padded: bool = True) -> tuple[int, ...]:
    sizes: Iterable[int] = count(1)
    if padded and speculative:
        sizes = chain(range(1, 9), _steps(10, 2, 12), _steps(40, 4, 7), _steps(72, 8, 24), count(272, 16))
    elif padded:
        sizes = chain((1, 2, 4, 8, 12), _steps(16, 8, 31), _steps(272, 16, 15), count(512, 32))
    return (*takewhile(lambda size: size < max_bs, sizes), max_bs)


def prefill_graph_sizes(max_tokens: int) -> tuple[int, ...]:
    small = chain(_steps(4, 4, 8), _steps(48, 16, 14), _steps(288, 32, 8), _steps(576, 64, 8))
    sizes = chain(small, _steps(1280, 256, 12), count(4608, 512))
    return tuple(takewhile(lambda size: size <= max_tokens, sizes))


def _steps(first: int, step: int, how_many: int) -> range:
    return range(first, first + step * how_many, step)


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
