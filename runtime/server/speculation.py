"""Speculative decoding by one more layer of the model itself: how far it runs ahead."""

from __future__ import annotations

from runtime.server.asked import Asked
from runtime.server.checkpoint import Checkpoint
from runtime.server.errors import ConfigError, Unsupported
from runtime.server.shape import Speculation

REQUESTS = 48  # --max-running-requests, where drafts run and nobody says
_ALGORITHMS = ("EAGLE", "NEXTN")
_DRAFTS_FROM_THEIR_PATH = (
    *("DeepseekV32ForCausalLM", "DeepseekV3ForCausalLM", "Glm4MoeForCausalLM", "GlmMoeDsaForCausalLM"),
)
_STEPS, _TOPK, _TOKENS = 3, 1, 4


def speculation(asked: Asked, model: Checkpoint) -> Speculation | None:
    named = asked.speculative_algorithm
    if named is None:
        return None
    if named.upper() not in _ALGORITHMS:
        raise Unsupported(
            f"--speculative-algorithm {named} is not one of the core's ({', '.join(_ALGORITHMS)}, by a layer "
            "of the model itself): a server answers for it"
        )
    steps, topk, tokens = (
        asked.speculative_num_steps,
        asked.speculative_eagle_topk,
        asked.speculative_num_draft_tokens,
    )
    if steps is None and topk is None and tokens is None:
        steps, topk, tokens = _unset(model)
    if steps is None or topk is None:
        raise ConfigError(
            "--speculative-num-steps and --speculative-eagle-topk go together", "give all, or none"
        )
    if topk == 1:
        tokens = steps + 1
    if tokens is None:
        raise ConfigError("--speculative-eagle-topk above 1 needs --speculative-num-draft-tokens")
    is_counted = model.architecture in _DRAFTS_FROM_THEIR_PATH or model.has("num_nextn_predict_layers")
    return Speculation(steps, topk, tokens, is_counted)


def _unset(model: Checkpoint) -> tuple[int, int, int]:
    return (5, 4, 8) if model.architecture == "LlamaForCausalLM" else (_STEPS, _TOPK, _TOKENS)
