"""What a release's own attention holds beside its pools: made with the backends, and for decode graphs, of a
target and of what drafts there.

Runs in the oracle's interpreter. Reads cases as read_draft_pools does, each with how many requests its
largest graph is of, and the largest of its draft's.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import json
import sys
import weakref
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from tests.oracle.flashinfer_wrappers import counting_wrappers
from tests.oracle.inside import enter, keep_output
from tests.oracle.read_any_pools import USUAL, in_a_fork
from tests.oracle.read_block_attention import attention_of_blocks
from tests.oracle.read_draft_pools import answered, draft_of, drafts_by_a_model, target_of, without_copies
from tests.oracle.read_held import _chosen, _group, _take_place, _with_bands

_REGISTRY = "sglang.srt.layers.attention.attention_registry"
_MADE: list[Any] = []
_COMPILES = ("trtllm_mla_backend", "cutedsl_mla_backend", "tokenspeed_mla_backend")
_LARGE = 16 * 1024
_PROCESSORS = 132
_SMALLEST = 512  # bytes that torch allocates
_POOLS = ("req_to_token_pool", "token_to_kv_pool", "token_to_kv_pool_allocator")


def main() -> None:
    enter()
    out = keep_output()
    # Imported before the forks, by a backend that leaves no workspace in its module.
    _answer({**USUAL, "most": 4, "argv": ["--attention-backend", "triton"]})
    for line in sys.stdin:
        print(json.dumps(in_a_fork(_answer, json.loads(line))), file=out, flush=True)


def _answer(case: dict[str, Any]) -> dict[str, Any]:
    return answered(case, _held)


def _held(case: dict[str, Any], args: Any) -> dict[str, Any]:
    from tests.oracle.release_start import _attention_dp, _getter

    without_copies()
    _with_hosts()
    _with_bands()
    get = _getter(args)
    tp, groups = get("tp_size"), _attention_dp(args, get)
    _take_place(tp, 1, 0, tp // groups, _group(1, 0))
    target, config, made = target_of(case, args)
    width = get("speculative_num_draft_tokens", None) or 1
    _served_by(target, made, config, width)
    held = _Held(made)
    backend = _backend_of(target, get)
    told = {"kind": type(backend).__name__, "made": held.more(backend), "wrappers": held.wrappers()}
    backend.init_cuda_graph_state(case["most"], case["most"] * width)
    told["graphs"] = held.more(backend)
    told["large"] = held.large
    if not drafts_by_a_model(args):
        return told
    draft, kept = draft_of(case, args, target, config, made)
    _served_by(draft, kept, config, width)
    held.add(kept)
    return {**told, **_of_draft(draft, held, get, case["draft_most"] or case["most"])}


def _of_draft(draft: Any, held: _Held, get: Any, most: int) -> dict[str, Any]:
    """Of its worker, its steps and its catching up."""
    topk, width = get("speculative_eagle_topk"), get("speculative_num_draft_tokens")
    if draft.spec_algorithm.is_dflash():
        return _of_blocks(draft, held, get, most)
    worker = _backend_of(draft, get)
    _tell_whether_latent(draft)
    factory = importlib.import_module("sglang.srt.speculative.draft_utils").DraftBackendFactory
    told = [draft, topk, get("speculative_num_steps")]
    if "server_args" in factory.__init__.__code__.co_varnames[:3]:
        told.insert(0, draft.server_args)
    make = factory(*told)
    steps, catches_up = make.create_decode_backend(), make.create_draft_extend_backend()
    made = held.more([worker, steps, catches_up])
    if steps is not None:
        steps.init_cuda_graph_state(most, most * topk)
    graphs = held.more([worker, steps, catches_up])
    wrappers = held.wrappers()
    caught = 0
    if catches_up is not None:
        catches_up.init_cuda_graph_state(most, most * width)
        caught = held.more([worker, steps, catches_up])
    kinds = [type(one).__name__ for one in (worker, steps, catches_up)]
    return {
        "draft kinds": kinds, "draft made": made, "draft wrappers": wrappers, "steps": graphs,
        "catching up": caught,
    }  # fmt: skip


def _of_blocks(draft: Any, held: _Held, get: Any, most: int) -> dict[str, Any]:
    """Of its worker alone, which decodes a block as a target verifies one."""
    worker = _backend_of(draft, get, attention_of_blocks(draft.server_args, get))
    made, wrappers = held.more(worker), held.wrappers()
    worker.init_cuda_graph_state(most, most * get("speculative_num_draft_tokens"))
    told = {"draft kinds": [type(worker).__name__], "draft made": made, "draft wrappers": wrappers}
    return {**told, "steps": held.more(worker), "catching up": 0}


def _tell_whether_latent(rank: Any) -> None:
    """As a runner of 0.5.12 to 0.5.14 does: until then it is a method, and taken for true."""
    drafting = importlib.import_module("sglang.srt.speculative.draft_utils")
    if "get_global_server_args().use_mla_backend" in inspect.getsource(drafting):
        drafting.get_global_server_args().use_mla_backend = rank.use_mla_backend


def _with_hosts() -> None:
    """What attention keeps in the host's memory too, of which here is no data; and memory is not pinned."""
    import torch

    for name in ("zeros", "empty", "full"):
        setattr(torch, name, _kept(getattr(torch, name)))
    own = torch.Tensor.to

    def moved(self: Any, *to: Any, **told: Any) -> Any:
        here = self.is_meta and to[:1] == ("cpu",)
        return torch.zeros(self.shape, dtype=self.dtype) if here else own(self, *to, **told)

    torch.Tensor.to = moved  # type: ignore[method-assign]
    torch.Tensor.pin_memory = lambda self: self  # type: ignore[method-assign]
    _with_counters()
    _with_tiles()
    for name in _COMPILES:
        try:
            module = importlib.import_module(f"sglang.srt.layers.attention.{name}")
        except ImportError:  # of another release
            continue
        for made in [one for one in vars(module) if one.startswith(("_jit_", "can_use_set_mla"))]:
            setattr(module, made, MagicMock())


def _with_tiles() -> None:
    """FlashMLA's own plan of a batch, where sparse attention asks for it: eight numbers a multiprocessor."""

    def plan(cache_seqlens: Any, **_: Any) -> Any:
        rows = cache_seqlens.new_empty((len(cache_seqlens) + 1,))
        return cache_seqlens.new_empty((_PROCESSORS, 8)), rows

    for name in ("sgl_kernel.flash_mla", "sglang.kernels.ops.attention.flash_mla_interface"):
        try:
            importlib.import_module(name).get_mla_metadata = plan
        except ImportError:  # of another release
            continue


def _with_counters() -> None:
    """FlashInfer's own sums, where it wants a GPU to be imported."""
    import flashinfer

    flashinfer.utils.get_device_sm_count = lambda _: _PROCESSORS
    flashinfer.utils.get_trtllm_gen_multi_ctas_kv_counter_bytes = lambda rows, heads, processors: (
        -(-max(rows * heads, processors) // 8) * 8 * 4
    )


def _kept(make: Any) -> Any:
    """Some workspaces are a module's, and nobody's who was made."""

    def made(*sizes: Any, **told: Any) -> Any:
        tensor = make(*sizes, **told)
        _MADE.append(weakref.ref(tensor))
        return tensor

    return made


def _served_by(rank: Any, made: Any, config: Any, width: int) -> None:
    """As much more of a runner as its attention looks at."""
    model = rank.model_config
    more = {
        "req_to_token_pool": made.req_to_token_pool, "token_to_kv_pool": made.token_to_kv_pool,
        "token_to_kv_pool_allocator": made.token_to_kv_pool_allocator, "init_new_workspace": False,
        "max_running_requests": config.max_running_requests, "is_hybrid": False, "dcp_size": 1,
        "max_total_num_tokens": config.max_total_num_tokens, "tp_size": rank.ps.tp_size,
        "kv_index_translator": MagicMock(is_translating=False), "plan_stream_for_flashinfer": MagicMock(),
        "model": MagicMock(modules=lambda: ()), "hisparse_coordinator": None, "enable_hisparse": False,
        "draft_attention_backend": None, "attention_chunk_size": model.attention_chunk_size,
        "decode_num_tokens_per_req": lambda **_: width, "attn_cp_size": 1, "linear_attn_model_spec": None,
    }  # fmt: skip
    rank.ps.attn_cp_size = 1
    if not hasattr(_chosen(model), "get_attention_sliding_window_size"):
        more["sliding_window_size"] = _untold_window(model)
    elif _asks_its_file(rank):
        told = SimpleNamespace(config=model.hf_config)
        more["sliding_window_size"] = _chosen(model).get_attention_sliding_window_size(told)
    for name, value in more.items():
        object.__setattr__(rank, name, value)


def _asks_its_file(rank: Any) -> bool:
    """Of Jet-Nemotron and of DFLASH's drafts, whose classes read a window there."""
    blocks = rank.is_draft_worker and rank.spec_algorithm.is_dflash()
    return blocks or hasattr(rank.model_config.hf_config, "efficient_attention_config")


def _untold_window(model: Any) -> Any:
    """By no method of a class: resolve_sliding_window_size of srt/model_executor."""
    told = model.sliding_window_size if model.is_hybrid_swa else None
    return model.attention_chunk_size if told is None else told


def _backend_of(rank: Any, get: Any, own: str | None = None) -> Any:
    """As a runner chooses: a draft's may be told; and that of decodes it makes first."""
    registry = importlib.import_module(_REGISTRY)
    if own is None and rank.is_draft_worker:
        own = get("speculative_draft_attention_backend", None)
    object.__setattr__(rank, "draft_attention_backend", own)
    names = [own, own] if own else rank.used
    for phase, name in zip(("prefill", "decode"), names, strict=True):
        object.__setattr__(rank, f"{phase}_attention_backend_str", name)
    made = [
        registry.attn_backend_wrapper(rank, registry.ATTENTION_BACKENDS[name](rank))
        for name in dict.fromkeys(reversed(names))
    ]
    if len(made) == 1:
        return made[0]
    hybrid = importlib.import_module("sglang.srt.layers.attention.hybrid_attn_backend").HybridAttnBackend
    return hybrid(rank, decode_backend=made[0], prefill_backend=made[1])


class _Held:
    """What came since it was last asked: bytes by how they are named, of all that was not there before."""

    def __init__(self, pools: Any) -> None:
        self.seen: set[int] = set()
        self.kept: list[Any] = []
        self.large: Counter[str] = Counter()
        self.made = counting_wrappers()
        self.add(pools)

    def add(self, pools: Any) -> None:
        self.more([getattr(pools, name) for name in _POOLS])
        self.large.clear()

    def more(self, value: Any) -> int:
        """A place is looked at again, a storage is not."""
        gc.collect()
        found = [*_each(value, set()), *(one for ref in _MADE if (one := ref()) is not None and one.is_meta)]
        new = {one.untyped_storage()._cdata: one for one in found}
        fresh = [one for key, one in new.items() if key not in self.seen]
        self.seen |= set(new)
        self.kept += fresh  # so that no other takes its place
        large = (one for one in fresh if one.untyped_storage().nbytes() > _LARGE)
        self.large += Counter(f"{[*one.shape]} {one.dtype}" for one in large)
        return sum(-(-one.untyped_storage().nbytes() // _SMALLEST) * _SMALLEST for one in fresh)

    def wrappers(self) -> int:
        found, self.made[:] = len(self.made), []
        return found


def _each(value: Any, seen: set[int]) -> Iterator[Any]:
    import torch

    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        if value.device.type == "meta":
            yield value
        return
    inner: Any = ()
    if isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, list | tuple):
        inner = value
    elif isinstance(value, SimpleNamespace) or type(value).__module__.startswith("sglang."):
        fields = getattr(value, "__struct_fields__", ())  # of msgspec's
        inner = [*getattr(value, "__dict__", {}).values(), *(getattr(value, one) for one in fields)]
    for one in inner:
        yield from _each(one, seen)


if __name__ == "__main__":
    main()
