"""The batches that CUDA graphs are captured for: requests of a decode step, tokens of a prefill."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, count, takewhile

from runtime.server.asked import Asked

_PIPELINE_TOP, _MLA_TOP, _LLAMA_2_TOP = 8192, 8192, 4096


@dataclass(frozen=True, slots=True)
class Captured:
    """The largest batch of decodes, and the captured sizes of decodes and prefills."""

    decode_top: int
    decode: tuple[int, ...]
    prefill: tuple[int, ...]


def captured(asked: Asked, decode_default: int, chunk: int, is_mla: bool) -> Captured:
    """Return the sizes to capture. `chunk` is the number of tokens in a prefill of the whole server."""
    top = asked.cuda_graph_max_bs
    if top is None:
        top = min(decode_default, asked.max_running_requests or decode_default)
    sizes = asked.cuda_graph_bs or decode_graph_sizes(top, asked.speculative_algorithm is not None)
    off = asked.disable_cuda_graph
    decode = () if off else sizes
    without = off or asked.disable_prefill_cuda_graph or asked.pp_size > 1
    prefill = () if without else prefill_graph_sizes(_prefill_top(asked, chunk, is_mla))
    return Captured(max(sizes), tuple(sorted(decode)), prefill)


def fitted(prefill: tuple[int, ...], chunk: int) -> tuple[int, ...]:
    """Return the sizes that fit a chunk that became smaller."""
    return prefill if not prefill or prefill[-1] <= chunk else prefill_graph_sizes(chunk)


def _prefill_top(asked: Asked, chunk: int, is_mla: bool) -> int:
    of_family = _LLAMA_2_TOP if "llama-2" in asked.model_path.lower() else None
    caps = (chunk, _MLA_TOP if is_mla else None, of_family, asked.max_total_tokens)
    return min(cap for cap in caps if cap is not None)


def decode_graph_sizes(max_bs: int, speculative: bool = False) -> tuple[int, ...]:
    sizes: Iterable[int]
    if speculative:
        sizes = chain(range(1, 9), _steps(10, 2, 12), _steps(40, 4, 7), _steps(72, 8, 24), count(272, 16))
    else:
        sizes = chain((1, 2, 4, 8, 12), _steps(16, 8, 31), _steps(272, 16, 15), count(512, 32))
    return (*takewhile(lambda size: size < max_bs, sizes), max_bs)


def prefill_graph_sizes(max_tokens: int) -> tuple[int, ...]:
    small = chain(_steps(4, 4, 8), _steps(48, 16, 14), _steps(288, 32, 8), _steps(576, 64, 8))
    sizes = chain(small, _steps(1280, 256, 12), count(4608, 512))
    return tuple(takewhile(lambda size: size <= max_tokens, sizes))


def _steps(first: int, step: int, how_many: int) -> range:
    return range(first, first + step * how_many, step)
