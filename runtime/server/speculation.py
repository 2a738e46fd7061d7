"""Speculative decoding: how far a draft runs ahead, and which worker drafts."""

from __future__ import annotations

from runtime.server.architectures import DRAFTS_FROM_THEIR_PATH
from runtime.server.backends import backend_row
from runtime.server.choices import Choices
from runtime.server.errors import ConfigError
from runtime.server.families import LONG_DRAFTS
from runtime.server.traits import has_dp_attention

_GEMMA_DRAFTS = ("Gemma4AssistantForCausalLM", "Gemma4UnifiedAssistantForCausalLM")
_REQUESTS = 48
_NGRAM_TOKENS = 12
_DFLASH_TOKENS = 16
_DSPARK_GAMMA = 7
_BUNDLED_DSPARK = (
    *("dspark_block_size", "dspark_markov_rank"),
    *("dspark_noise_token_id", "dspark_target_layer_ids"),
)
_ONE_BRANCH = "one branch is as long as its steps, and one token more"
DRAFTLESS = ("NGRAM", "UNO")
_NESTED = "dflash_config"
_OF_DFLASH = (_NESTED, "block_size")
_OF_DSPARK = ("dspark_block_size", *_OF_DFLASH)


def settle_speculation(c: Choices) -> None:
    if c.speculative_moe_runner_backend is None:
        c.settle("the target's", speculative_moe_runner_backend=_draft_backend(c))
    if c.speculative_algorithm is None:
        return
    algorithm = _algorithm(c)
    c.settle("its full name", speculative_algorithm=algorithm)
    if c.max_running_requests is None:
        c.settle(f"speculation with {algorithm}", max_running_requests=_REQUESTS)
    _SETTLERS.get(algorithm, _eagle)(c)


def _draft_backend(c: Choices) -> str:
    """A draft runs no mega kernel."""
    backend = backend_row(c.moe_runner_backend)
    return "flashinfer_trtllm" if backend.files_by_gpu and c.release.megamoe_files_by_gpu else backend.name


def _algorithm(c: Choices) -> str:
    name, asked = c.speculative_algorithm.upper(), c.speculative_algorithm
    known = (*c.release.algorithms, "NEXTN")
    if name not in known:
        raise ConfigError(
            f"--speculative-algorithm {asked} is not supported by SGLang {c.release.version}",
            f"one of {', '.join(known)}",
        )
    assists = c.draft_model is not None and c.draft_model.architecture in _GEMMA_DRAFTS
    if name in ("NEXTN", "EAGLE"):
        return "FROZEN_KV_MTP" if assists else "EAGLE"
    if name == "EAGLE3" and assists:
        raise ConfigError("--speculative-algorithm EAGLE3 does not run this draft", "NEXTN does")
    return str(name)


def counts_draft(c: Choices) -> bool:
    """Whether the KV pool is sized with the draft's layers: a model's own draft is forgotten by some."""
    if c.speculative_algorithm in ("DFLASH", "DSPARK"):
        return True
    if not c.release.loads_drafts_before_pool:
        return False
    has_path = c.speculative_draft_model_path is not None or c.model.architecture in DRAFTS_FROM_THEIR_PATH
    return has_path or (c.release.counts_told_drafts and c.model.has("num_nextn_predict_layers"))


def _eagle(c: Choices) -> None:
    if c.speculative_algorithm == "STANDALONE":
        _refuse_dp_attention(c)
    if c.release.adaptive_sizes and adapts(c):
        _adaptive_sizes(c)
    else:
        _eagle_sizes(c)
    _check_tree(c)


def adapts(c: Choices) -> bool:
    """adaptive_unsupported_reason of srt/speculative/adaptive_spec_params.py: else the flag is left aside."""
    apart = c.enable_multi_layer_eagle or c.enable_two_batch_overlap or c.enable_pdmux
    asked = c.speculative_adaptive and c.speculative_algorithm in ("EAGLE", "EAGLE3") and not apart
    return bool(asked and c.speculative_eagle_topk in (None, 1) and not has_dp_attention(c))


def _adaptive_sizes(c: Choices) -> None:
    possible, steps = c.release.adaptive_steps, c.speculative_num_steps
    if steps is None:
        steps = possible[len(possible) // 2]
    _settle_sizes(c, "adaptive", steps, 1, steps + 1)


def _eagle_sizes(c: Choices) -> None:
    steps, topk, tokens = (
        c.speculative_num_steps,
        c.speculative_eagle_topk,
        c.speculative_num_draft_tokens,
    )
    rule = _ONE_BRANCH
    if steps is None:
        if topk is not None or tokens is not None:
            raise ConfigError(
                "--speculative-eagle-topk and --speculative-num-draft-tokens need --speculative-num-steps",
                "give all three, or none",
            )
        steps, topk, tokens = _unset(c)
        rule = f"{c.speculative_algorithm} of {c.model.architecture}"
    if topk is None:
        raise ConfigError("--speculative-num-steps needs --speculative-eagle-topk", "give all three, or none")
    if topk == 1:
        tokens = steps + 1
    if tokens is None:
        raise ConfigError("--speculative-eagle-topk above 1 needs --speculative-num-draft-tokens")
    _settle_sizes(c, rule, steps, topk, tokens)


def _unset(c: Choices) -> tuple[int, int, int]:
    long = c.model.architecture in LONG_DRAFTS and c.speculative_algorithm != "STANDALONE"
    return (5, 4, 8) if long else (3, 1, 4)


def _settle_sizes(c: Choices, rule: str, steps: int | None, topk: int, tokens: int) -> None:
    c.settle(
        rule,
        speculative_num_steps=steps,
        speculative_eagle_topk=topk,
        speculative_num_draft_tokens=tokens,
    )


def _check_tree(c: Choices) -> None:
    """More than one token a step is a tree, which not every attention walks."""
    if c.speculative_eagle_topk <= 1:
        return
    if "trtllm_mha" in (c.attention_backend, c.prefill_attention_backend, c.decode_attention_backend):
        raise ConfigError(
            f"--speculative-eagle-topk {c.speculative_eagle_topk}: attention backend trtllm_mha takes 1 only",
            tries=({"speculative_eagle_topk": 1}, "attention_backend"),
        )
    if c.page_size > 1 and c.attention_backend not in c.release.pages_with_topk:
        raise ConfigError(
            f"--speculative-eagle-topk {c.speculative_eagle_topk} with pages of {c.page_size} tokens needs "
            f"attention backend {' or '.join(c.release.pages_with_topk)}, not {c.attention_backend}",
            tries=({"speculative_eagle_topk": 1}, {"page_size": 1}, "attention_backend"),
        )


def _ngram(c: Choices) -> None:
    _refuse_dp_attention(c)
    topk = c.speculative_ngram_max_bfs_breadth
    tokens = c.speculative_num_draft_tokens or _NGRAM_TOKENS
    steps = c.speculative_num_steps
    if steps is None and c.release.ngram_counts_steps:
        if topk == 0:
            raise ConfigError("--speculative-ngram-max-bfs-breadth is 0", "1 or more")
        steps = tokens // topk
    _settle_sizes(c, "NGRAM's own", steps, topk, tokens)
    if topk > 1 and c.page_size > 1 and c.attention_backend != "flashinfer":
        raise ConfigError(
            f"NGRAM with pages of {c.page_size} tokens needs attention backend flashinfer",
            tries=({"page_size": 1}, {"speculative_ngram_max_bfs_breadth": 1}, "attention_backend"),
        )


def _dflash(c: Choices) -> None:
    if c.pp_size != 1:
        raise ConfigError(f"--pp {c.pp_size}: DFLASH runs without pipeline parallelism", tries=("pp_size",))
    if c.speculative_draft_model_path is None:
        raise ConfigError("DFLASH needs a draft", "--speculative-draft-model-path")
    if c.attn_dp_size > 1 and not (c.release.dflash_shares_heads and c.enable_dp_lm_head):
        raise ConfigError(
            "DFLASH does not run with DP attention so",
            tries=({"enable_dp_lm_head": True}, "enable_dp_attention"),
        )
    block = c.speculative_dflash_block_size or c.speculative_num_draft_tokens
    drafted = block or _block_size(c, _OF_DFLASH)
    rule = "the draft's block" if drafted else "DFLASH's own"
    _settle_sizes(c, rule, 1, 1, drafted or _DFLASH_TOKENS)


def _dspark(c: Choices) -> None:
    bundled = any(c.model.get(name) is not None for name in _BUNDLED_DSPARK)
    if c.speculative_draft_model_path is None and not bundled:
        raise ConfigError("DSPARK needs a draft: the model brings none", "--speculative-draft-model-path")
    gamma = c.speculative_dspark_block_size or _block_size(c, _OF_DSPARK)
    asked = c.speculative_num_draft_tokens
    tokens = gamma + 1 if gamma else asked or _DSPARK_GAMMA + 1
    if asked not in (None, tokens):
        raise ConfigError(f"--speculative-num-draft-tokens {asked}: the draft takes {tokens}", "leave it out")
    _settle_sizes(c, "the draft's block" if gamma else "DSPARK's own", 1, 1, tokens)


def _block_size(c: Choices, names: tuple[str, ...]) -> int | None:
    """How far the draft's checkpoint says it looks ahead, by the first of these."""
    draft = c.draft_model or c.model
    told = {name: draft.get(name) for name in names} | {_NESTED: draft.mapping(_NESTED).get("block_size")}
    value = next((one for one in told.values() if one is not None), None)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"config.json: block_size is {value!r}: a positive whole number is needed")
    return value


def _frozen(c: Choices) -> None:
    """Nothing fills in its sizes."""
    sizes = (c.speculative_num_steps, c.speculative_eagle_topk, c.speculative_num_draft_tokens)
    if None in sizes:
        raise ConfigError(
            f"{c.speculative_algorithm} has no sizes of its own",
            "--speculative-num-steps, --speculative-eagle-topk and --speculative-num-draft-tokens",
        )


def _uno(c: Choices) -> None:
    if c.tp_size * c.pp_size != 1 or c.speculative_draft_model_path is not None:
        raise ConfigError("UNO runs on one rank, and drafts with the model itself", "--tp 1, and no draft")
    if c.speculative_num_draft_tokens is None:
        raise ConfigError("UNO has no width of its own", "--speculative-num-draft-tokens")
    topk = c.speculative_eagle_topk or 1
    if topk > 1 and c.speculative_num_steps is None:
        raise ConfigError(f"UNO with --speculative-eagle-topk {topk} needs --speculative-num-steps")
    steps = c.speculative_num_steps if topk > 1 else 1
    _settle_sizes(c, "UNO's own", steps, topk, c.speculative_num_draft_tokens)


def _refuse_dp_attention(c: Choices) -> None:
    if c.attn_dp_size > 1:
        raise ConfigError(
            f"--speculative-algorithm {c.speculative_algorithm} does not run with DP attention",
            tries=("enable_dp_attention", "speculative_algorithm"),
        )


_SETTLERS = {"NGRAM": _ngram, "DFLASH": _dflash, "DSPARK": _dspark, "FROZEN_KV_MTP": _frozen, "UNO": _uno}
