"""Prefills captured whole over one memory for all pools: _validate_unified_memory of
srt/arg_groups/kv_cache_hook.py."""

from __future__ import annotations

from runtime.server.attention import used_backends
from runtime.server.choices import Choices
from runtime.server.graph_backends import WHOLE

_CAPTURED_ON = frozenset({None, "fa3", "fa4"})


def settle_whole_prefills(c: Choices) -> None:
    is_asked = c.enable_unified_memory and c.prefill.backend == WHOLE
    if is_asked and c.release.unified_memory_checks_whole_prefills and set(used_backends(c)) - _CAPTURED_ON:
        c.disable(c.prefill, "over --enable-unified-memory whole prefills are captured on fa3 and fa4")
