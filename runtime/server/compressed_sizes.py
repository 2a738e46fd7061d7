"""How large DeepSeek-V4's pools are: SGLang's arithmetic from bytes to tokens, and from tokens to buffers.

srt/model_executor/pool_configurator.py, DSV4PoolConfigurator, and srt/mem_cache/deepseek_v4_memory_pool.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runtime.server.compressed_rules import CompressedRules
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.errors import NoRoomForTokens, Unsupported
from runtime.server.parallel_config import ParallelConfig
from runtime.server.requests import share_of

PAGE = 256
_WIDTH, _TURNED = 512, 64  # of keys that its kernels know
_SCALES, _ROW = 8, 576  # bytes beside a key; what a page is padded to
_FP32, _SLOT = 4, 8
_SPARSE, _HEAVY = 4, 128  # tokens of a group
_RING = {_SPARSE: 8, _HEAVY: 128}  # what becomes a group's key, of so many tokens
_REQUESTS = 256


@dataclass(frozen=True, slots=True)
class CompressedPlan:
    """Tokens of all layers, those that windows keep, and the bytes that one of all costs a stage."""

    tokens: int
    window_tokens: int
    requests: int
    bytes_per_token: float


@dataclass(frozen=True, slots=True)
class CompressedBuffer:
    """So many of them, `rows` of `row_bytes`: a page, or what a token leaves until its group is whole."""

    what: str
    count: int
    rows: int
    row_bytes: int


@dataclass(frozen=True, slots=True)
class _Layers:
    every: int
    sparse: int
    heavy: int

    @classmethod
    def of(cls, kinds: Sequence[str]) -> _Layers:
        return cls(len(kinds), kinds.count("sparse"), kinds.count("heavy"))


def compressed_tokens(
    rest: float, model: ModelConfig, parallel: ParallelConfig, runtime: RuntimeConfig, layers: Sequence[int]
) -> int:
    """That there is room for, whole pages of them; none, and SGLang ends."""
    rules = runtime.release.compressed_pools
    left = int(rest)
    if rules.by_requests:
        asked = _asked_requests(parallel, runtime)
        own = _Layers.of([model.attention_kinds[layer] for layer in layers])
        left -= own.heavy * _request_rows(asked) * _state_bytes(model, 2)
    each = compressed_bytes_per_token(model, runtime, layers)
    return int(max(left, 0) / each) // PAGE * PAGE


def compressed_bytes_per_token(model: ModelConfig, runtime: RuntimeConfig, layers: Sequence[int]) -> float:
    """What grows with the tokens of all layers, the windows' share of them among it."""
    _check_keys(model)
    rules, share = runtime.release.compressed_pools, runtime.sliding_share
    counted = _Layers.of(_counted(model, rules, layers))
    key, index = _key_bytes(model), _index_bytes(model)
    ring = _RING[_SPARSE] / (PAGE if rules.by_pages else _window(model))
    sparse_state = ring * (_state_bytes(model, 4) + _index_state_bytes(model)) * counted.sparse
    if rules.by_pages:
        windows = share * (_page_bytes(model, 1) / PAGE * counted.every + sparse_state)
        sparse = _page_bytes(model, _SPARSE) / PAGE + index / _SPARSE
        return windows + sparse * counted.sparse + _page_bytes(model, _HEAVY) / PAGE * counted.heavy
    groups = key / _SPARSE * counted.sparse + key / _HEAVY * counted.heavy + index / _SPARSE * counted.sparse
    heavy_state = 0 if rules.by_requests else _state_bytes(model, 2) * counted.heavy
    return share * (key * counted.every + sparse_state + heavy_state) + groups


def plan_compressed(
    tokens: int, requests: int, model: ModelConfig, runtime: RuntimeConfig, layers: Sequence[int]
) -> CompressedPlan:
    rules = runtime.release.compressed_pools
    windows = int(tokens * runtime.sliding_share) // PAGE * PAGE
    if rules.checks_window and windows <= _window(model) + PAGE:
        raise NoRoomForTokens(
            f"{windows} tokens of windows hold no request's {_window(model)} and a page of {PAGE}: raise "
            "--mem-fraction-static or --swa-full-tokens-ratio, or spread the weights over more GPUs"
        )
    return CompressedPlan(tokens, windows, requests, compressed_bytes_per_token(model, runtime, layers))


def compressed_buffers(
    plan: CompressedPlan, model: ModelConfig, runtime: RuntimeConfig, layers: Sequence[int]
) -> Iterator[CompressedBuffer]:
    """Of a stage, with those that no token is in."""
    rules, pages = runtime.release.compressed_pools, plan.tokens // PAGE
    own = _Layers.of([model.attention_kinds[layer] for layer in layers])
    dummies = {rate: rate if rules.by_pages else 1 for rate in _RING}
    windows, unit = plan.window_tokens, PAGE if rules.by_pages else _window(model)
    yield CompressedBuffer("keys of windows", own.every, windows // PAGE + 1, _page_bytes(model, 1))
    for rate, count in ((_SPARSE, own.sparse), (_HEAVY, own.heavy)):
        name = f"keys of {rate} tokens"
        yield CompressedBuffer(name, count, pages + dummies[rate], _page_bytes(model, rate))
    rows = pages + (dummies[_SPARSE] if rules.pads_index else 1)
    yield CompressedBuffer("keys of indexers", own.sparse, rows, PAGE // _SPARSE * _index_bytes(model))
    rows = _ring_rows(windows // unit * _RING[_SPARSE], _SPARSE)
    yield CompressedBuffer("unfinished keys of 4 tokens", own.sparse, rows, _state_bytes(model, 4))
    yield CompressedBuffer("unfinished keys of indexers", own.sparse, rows, _index_state_bytes(model))
    rows = (
        _request_rows(plan.requests)
        if rules.by_requests
        else _ring_rows(windows // unit * _RING[_HEAVY], _HEAVY)
    )
    yield CompressedBuffer("unfinished keys of 128 tokens", own.heavy, rows, _state_bytes(model, 2))
    yield CompressedBuffer("where windows keep a token", 1, plan.tokens + PAGE + 1, _SLOT)
    yield CompressedBuffer("free pages", 1, pages + windows // PAGE, _SLOT)


def second_tables(model: ModelConfig, runtime: RuntimeConfig, layers: Sequence[int]) -> Iterator[int]:
    """The positions of each further table of angles that a stage has, as wide as the one of its layers."""
    rules = runtime.release.compressed_pools
    if not rules.second_tables or model.compressed is None:
        return
    told = [one.rope.parameters for one in model.attention.values() if one.rope is not None]
    stretched = next((one for one in told if one.get("rope_type") == "yarn"), None)
    for kind in dict.fromkeys("sliding" if _is_sliding(model, layer) else "groups" for layer in layers):
        if stretched is not None and (kind == "groups" or rules.stretches_windows):
            yield int(stretched["original_max_position_embeddings"] * stretched["factor"])
        else:
            yield model.max_position


def _is_sliding(model: ModelConfig, layer: int) -> bool:
    return model.attention_kinds[layer] == "sliding"


def _counted(model: ModelConfig, rules: CompressedRules, layers: Sequence[int]) -> list[str]:
    assert model.compressed is not None
    if not rules.by_stage:
        return [*model.attention_kinds, *model.compressed.behind]
    return [model.attention_kinds[layer] for layer in layers]


def _check_keys(model: ModelConfig) -> None:
    width, turned = model.main_attention.head_dim, _turned(model)
    if (width, turned) != (_WIDTH, _TURNED):
        raise Unsupported(
            f"config.json: head_dim is {width}, qk_rope_head_dim {turned}: SGLang's pool of compressed keys "
            f"has {_WIDTH} and {_TURNED} alone"
        )


def _window(model: ModelConfig) -> int:
    return model.main_attention.window or PAGE


def _turned(model: ModelConfig) -> int:
    rope = model.main_attention.rope
    return rope.dim if rope is not None else 0


def _asked_requests(parallel: ParallelConfig, runtime: RuntimeConfig) -> int:
    return share_of(runtime.max_running_requests or _REQUESTS, parallel.attn_dp, runtime.release)


def _key_bytes(model: ModelConfig) -> int:
    """In fp8, what is turned in bfloat16."""
    return model.main_attention.head_dim + _turned(model) + _SCALES


def _page_bytes(model: ModelConfig, rate: int) -> int:
    return -(-(PAGE // rate * _key_bytes(model)) // _ROW) * _ROW


def _index_bytes(model: ModelConfig) -> int:
    assert model.compressed is not None
    width = model.compressed.indexer.head_dim
    return width + width // 128 * 4


def _state_bytes(model: ModelConfig, keys: int) -> int:
    return keys * model.main_attention.head_dim * _FP32


def _index_state_bytes(model: ModelConfig) -> int:
    assert model.compressed is not None
    return 4 * model.compressed.indexer.head_dim * _FP32


def _request_rows(requests: int) -> int:
    return _ring_rows((requests + 1) * _RING[_HEAVY], _HEAVY)


def _ring_rows(rows: int, rate: int) -> int:
    """Behind them one ring that nobody has, and a row of nothing; whole groups."""
    return -(-(rows + _RING[rate] + 1) // rate) * rate
