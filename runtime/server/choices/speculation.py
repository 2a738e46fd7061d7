"""Speculative decoding by one more layer of the model itself: its steps, branches and tokens."""

from __future__ import annotations

from runtime.server.asked import Asked
from runtime.server.config import SpeculativeConfig
from runtime.server.errors import ConfigError, Unsupported

REQUESTS = 48  # the default of --max-running-requests with drafts
_ALGORITHMS = ("EAGLE", "NEXTN")


def speculation(asked: Asked) -> SpeculativeConfig | None:
    named = asked.speculative_algorithm
    if named is None:
        return None
    if named.upper() not in _ALGORITHMS:
        raise Unsupported(
            f"--speculative-algorithm {named} is not one of the core's ({', '.join(_ALGORITHMS)}, by a layer "
            "of the model itself): a server answers for it"
        )
    if asked.pp_size > 1:
        raise Unsupported("drafts on pipeline stages: a server answers for them")
    steps, topk = asked.speculative_num_steps, asked.speculative_eagle_topk
    tokens = asked.speculative_num_draft_tokens
    if steps is None and topk is None and tokens is None:
        steps, topk, tokens = 3, 1, 4
    if steps is None or topk is None:
        raise ConfigError(
            "--speculative-num-steps and --speculative-eagle-topk go together", "give all, or none"
        )
    if topk == 1:
        tokens = steps + 1
    if tokens is None:
        raise ConfigError("--speculative-eagle-topk above 1 needs --speculative-num-draft-tokens")
    return SpeculativeConfig(steps, topk, tokens)
