"""... of families most of whose layers have states, or one thing each."""

from __future__ import annotations

from runtime.server.unserved_row import DRAFTS, PLAIN_ALONE, Row
from runtime.server.unserved_when import by_logits, moves_experts

MIXERS = {
    # srt/models/zaya.py, whose experts are chosen before any kernel, and whose layers share out no rows
    "zaya": (
        Row(
            lambda _, s: s.release.number < (0, 5, 14),
            "releases before 0.5.14: they have no class of it, and run transformers' own",
        ),
        Row(lambda _, s: s.pp_size > 1, "--pp: a stage's first router is not told what the one before made"),
        Row(lambda _, s: s.moe_a2a_backend != "none", "an all-to-all: its layers share out no rows"),
        Row(moves_experts, "experts that move: its class names none"),
        Row(by_logits, "a MoE backend but triton and flashinfer_cutlass: its router has no logits for it"),
        PLAIN_ALONE,
        DRAFTS,
    ),
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
