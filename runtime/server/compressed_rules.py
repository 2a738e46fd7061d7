"""What releases do differently about DeepSeek-V4's pools. No torch.

srt/model_executor/pool_configurator.py and srt/mem_cache/deepseek_v4_memory_pool.py of each.
"""

from __future__ import annotations

from typing import NamedTuple

WINDOW_SHARE = 0.1  # of all tokens, that windows keep, where nobody says


class CompressedRules(NamedTuple):
    """`by_stage`: a stage counts its own layers, and none that draft. `by_requests`: what becomes the keys of
    128 tokens is kept for each request, and taken off before tokens are counted. `checks_window`: a pool
    that holds no request's window ends the start. `by_pages`: bytes are those of padded pages, what becomes
    the keys of 4 tokens is kept for each page, and dummy tokens have a page of all tokens. `pads_index`: the
    indexer's do, too. `keeps_share`: the window's share that is the usual one elsewhere is no other here.
    """

    by_stage: bool = True
    by_requests: bool = True
    checks_window: bool = False
    by_pages: bool = False
    pads_index: bool = False
    keeps_share: bool = False
    second_tables: bool = True  # of angles, for layers that turn by them otherwise: models/deepseek_v4.py
    stretches_windows: bool = False  # ... and as far as those that compress


COMPRESSED_12 = CompressedRules(by_stage=False, by_requests=False, second_tables=False)
COMPRESSED_13 = CompressedRules(by_requests=False, stretches_windows=True)
COMPRESSED_15 = CompressedRules(stretches_windows=True)
COMPRESSED_18 = CompressedRules()
COMPRESSED_20 = CompressedRules(checks_window=True, keeps_share=True)
COMPRESSED_21 = COMPRESSED_20._replace(by_pages=True)
COMPRESSED_22 = COMPRESSED_21._replace(pads_index=True)
