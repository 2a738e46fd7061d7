"""Whether a KV cache takes what graphs and activations really left: post_capture_kv_sizing_planned of
srt/arg_groups/overrides.py, which muse_spark_hook.py turns on for Muse Spark."""

from __future__ import annotations

from runtime.server.architectures import MUSE_SPARK
from runtime.server.checks.budgets import prefill_buffer
from runtime.server.choices import Choices
from runtime.server.traits import is_hybrid_swa

_WITH_POOLS = ("EAGLE", "NEXTN", "EAGLE3", "FROZEN_KV_MTP", "STANDALONE", "DFLASH", "DSPARK")


def is_sized_after_capture(c: Choices) -> bool:
    if c.model.architecture != MUSE_SPARK or c.dcp_size != 1:
        return False
    if c.enable_kv_cache_sharding or c.prefill_only_disable_kv_cache or c.enable_memory_saver:
        return False
    if c.enable_unified_memory and (not is_hybrid_swa(c) or c.speculative_algorithm in _WITH_POOLS):
        return False
    decodes_eagerly = c.disaggregation_mode != "prefill" and not c.decode.is_on
    return not decodes_eagerly and (c.disaggregation_mode == "decode" or _prefills_are_captured(c))


def _prefills_are_captured(c: Choices) -> bool:
    """The longest, too: an eager one would take more."""
    longest = max(c.prefill.sizes or (0,))
    return c.prefill.is_on and c.chunked_prefill_size > 0 and prefill_buffer(c) <= longest
