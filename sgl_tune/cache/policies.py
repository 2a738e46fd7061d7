"""How a choice was measured, as FlashInfer writes it beside a tactic: what a lookup asks for."""

from __future__ import annotations

Policy = tuple[str, int | None, str, str]

HOT: Policy = ("cuda_graph_profile_replays", None, "l2_cache_policy", "hot")
COLD_UNREPLAYED: Policy = ("cuda_graph_profile_replays", None, "l2_cache_policy", "cold")
COLD: Policy = ("cuda_graph_profile_replays", 1, "l2_cache_policy", "cold")
