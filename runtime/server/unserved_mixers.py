"""... of families most of whose layers have states, or one thing each."""

from __future__ import annotations

from runtime.server.unserved_row import DRAFTS, Row
from runtime.server.unserved_when import moves_experts

MIXERS = {
    # srt/models/nemotron_h.py, srt/configs/nemotron_h.py
    "nemotron_h_puzzle": (
        Row(
            lambda _, s: s.release.number < (0, 5, 13),
            "releases before 0.5.13: they have no class of it, and run transformers' own",
        ),
        Row(
            lambda _, s: s.moe_a2a_backend != "none",
            "an all-to-all: what it takes beside experts of several sizes is not known here",
        ),
        Row(moves_experts, "experts that move: which rank then has them is not known here"),
        DRAFTS,
    ),
}
