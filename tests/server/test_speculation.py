"""Speculation's sizes and the draft worker, as SGLang's code answers."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.drafting_attention import catches_up_in_graphs
from runtime.server.errors import ConfigError
from runtime.server.pool_plan import table_headroom
from runtime.server.releases import RELEASES
from runtime.server.speculative_config import SpeculativeConfig
from tests.server import asking
from tests.server.asking import FP8, MODELOPT_FP8, NVFP4, model, server

_FP8_CACHE = {"type": "float", "num_bits": 8}
Sizes = tuple[int | None, int, int]


def _sizes(checkpoint: Any, version: int = 23, **asked: Any) -> Sizes:
    found = server(checkpoint, version, "H200", **asked).speculative
    assert found is not None
    return found.steps, found.topk, found.draft_tokens


@pytest.mark.parametrize(
    ("family", "algorithm", "sizes"),
    [
        ("deepseek", "EAGLE", (3, 1, 4)),
        ("deepseek", "nextn", (3, 1, 4)),
        ("qwen3_moe", "EAGLE3", (3, 1, 4)),
        ("llama", "EAGLE3", (5, 4, 8)),
        ("llama", "STANDALONE", (3, 1, 4)),
    ],
)
def test_unset_sizes(family: str, algorithm: str, sizes: Sizes) -> None:
    assert _sizes(family, draft=model("eagle3"), speculative_algorithm=algorithm) == sizes


@pytest.mark.parametrize(
    ("steps", "topk", "tokens", "sizes"),
    [(5, 1, 6, (5, 1, 6)), (5, 1, 2, (5, 1, 6)), (2, 1, None, (2, 1, 3)), (3, 4, 8, (3, 4, 8))],
)
def test_a_chain_is_verified_to_its_end(steps: int, topk: int, tokens: int | None, sizes: Sizes) -> None:
    asked = {"speculative_num_steps": steps, "speculative_eagle_topk": topk}
    found = _sizes("llama", speculative_algorithm="EAGLE", **asked, speculative_num_draft_tokens=tokens)
    assert found == sizes


def test_ngram() -> None:
    asked = {"speculative_algorithm": "NGRAM"}
    assert _sizes("qwen3_moe", 13, **asked) == (None, 10, 12)
    assert _sizes("qwen3_moe", 14, **asked) == (1, 10, 12)
    assert _sizes("qwen3_moe", 14, **asked, speculative_num_draft_tokens=24) == (2, 10, 24)
    assert _sizes("qwen3_moe", 14, **asked, speculative_ngram_max_bfs_breadth=3) == (4, 3, 12)
    assert server("qwen3_moe", **asked).draft is None


def test_dflash() -> None:
    asked: dict[str, Any] = {"speculative_algorithm": "DFLASH", "draft": model("qwen3")}
    assert _sizes("qwen3", **asked) == (1, 1, 16)
    assert _sizes("qwen3", **asked, speculative_num_draft_tokens=9) == (1, 1, 9)
    assert _sizes("qwen3", **asked, speculative_dflash_block_size=12) == (1, 1, 12)
    asked["draft"] = model("qwen3", block_size=10)
    assert _sizes("qwen3", **asked) == (1, 1, 10)
    asked["draft"] = model("qwen3", block_size="ten")
    with pytest.raises(ConfigError, match="block_size is 'ten'"):
        _sizes("qwen3", **asked)


def test_dspark() -> None:
    asked: dict[str, Any] = {"speculative_algorithm": "DSPARK", "draft": model("qwen3")}
    assert _sizes("qwen3", 16, **asked) == (1, 1, 8)
    assert _sizes("qwen3", 16, **asked, speculative_num_draft_tokens=5) == (1, 1, 5)
    assert _sizes("qwen3", 16, **asked, speculative_dspark_block_size=5) == (1, 1, 6)
    asked["draft"] = model("qwen3", dflash_config={"block_size": 4}, block_size=9)
    assert _sizes("qwen3", 16, **asked) == (1, 1, 5)
    bundled = server(model("qwen3", dspark_block_size=3), speculative_algorithm="DSPARK")
    assert bundled.width == 4 and bundled.draft is not None and bundled.draft.model_path == "org/model"


def test_uno_drafts_with_the_model_itself() -> None:
    asked: dict[str, Any] = {"speculative_algorithm": "UNO", "speculative_num_draft_tokens": 6}
    asked |= {"attention_backend": "fa3", "others": {"uno_lora_path": "a"}}
    assert _sizes("qwen3", **asked) == (1, 1, 6)
    assert _sizes("qwen3", **asked, speculative_eagle_topk=2, speculative_num_steps=3) == (3, 2, 6)
    assert server("qwen3", **asked).draft is None
    for more in ({"tp_size": 2}, {"draft": model("qwen3")}):
        with pytest.raises(ConfigError, match="UNO runs on one rank"):
            server("qwen3", **asked, **more)


@pytest.mark.parametrize(("algorithm", "since"), [("DSPARK", 16), ("UNO", 23)])
def test_an_algorithm_is_known_since(algorithm: str, since: int) -> None:
    with pytest.raises(ConfigError, match=f"{algorithm} is not supported by SGLang 0.5.{since - 1}"):
        server("qwen3", since - 1, draft=model("qwen3"), speculative_algorithm=algorithm)


def test_gemmas_assistant_has_an_algorithm_of_its_own() -> None:
    assistant = model("gemma", architectures=["Gemma4AssistantForCausalLM"])
    asked: dict[str, Any] = {"draft": assistant, "speculative_num_steps": 3, "speculative_eagle_topk": 1}
    found = server("gemma4", **asked, speculative_algorithm="EAGLE", speculative_num_draft_tokens=4)
    assert found.speculative is not None and found.speculative.algorithm == "FROZEN_KV_MTP"
    with pytest.raises(ConfigError, match="EAGLE3 does not run this draft"):
        server("gemma4", **asked, speculative_algorithm="EAGLE3")
    with pytest.raises(ConfigError, match="FROZEN_KV_MTP has no sizes of its own"):
        server("gemma4", **asked, speculative_algorithm="NEXTN")


def test_speculation_leaves_48_requests_where_none_were_asked() -> None:
    assert server("deepseek", speculative_algorithm="EAGLE").max_running_requests == 48
    assert server("qwen3", speculative_algorithm="NGRAM").max_running_requests == 48
    asked = server("deepseek", speculative_algorithm="EAGLE", max_running_requests=7)
    assert asked.max_running_requests == 7


def test_a_draft_says_its_own_class_dtype_and_weights() -> None:
    own = model("eagle3", dtype="float16")
    found = server(model("qwen3_moe", FP8), draft=own, speculative_algorithm="EAGLE3", tp_size=4)
    assert found.draft is not None and found.draft.model_path == "org/draft"
    assert found.draft.key_parts == (
        *("org/model", "torch.float16", "fp8", "flashinfer_trtllm", "4", "1", "1", "1", "LlamaConfig"),
        *("candidate_selection=v2_default", "skip_ops=", "draft_quant=None"),
    )
    asked = server("qwen3_moe", draft=own, speculative_algorithm="EAGLE3", dtype="bfloat16").draft
    assert asked is not None and asked.key_parts[1] == "torch.bfloat16"
    assert (found.dtype, found.as_draft().dtype) == ("bfloat16", "float16")


def test_a_model_that_drafts_for_itself_shares_the_early_keys() -> None:
    early = server(model("deepseek", FP8), 14, speculative_algorithm="EAGLE")
    assert early.draft is not None
    assert (early.draft.model_path, early.draft.key) == ("org/model", early.key)
    later = server(model("deepseek", FP8), 15, speculative_algorithm="EAGLE")
    assert later.draft is not None and later.draft.key_parts == (*later.key_parts, "draft_quant=fp8")


def test_every_model_has_a_draft_where_none_is_named() -> None:
    found = server("qwen3_moe", speculative_algorithm="EAGLE").draft
    assert found is not None and found.model_path == "org/model"


@pytest.mark.parametrize(
    ("asked", "draft", "quantization"),
    [
        ({}, None, None),
        ({"quantization": "fp8"}, None, "fp8"),
        ({"quantization": "fp8"}, NVFP4, "modelopt_fp4"),
        ({"quantization": "fp8", "speculative_draft_model_quantization": "unquant"}, None, None),
        ({"speculative_draft_model_quantization": "mxfp8"}, None, "mxfp8"),
        ({"quantization": "mxfp8"}, FP8, "fp8"),
    ],
)
def test_a_drafts_weights(
    asked: dict[str, Any], draft: dict[str, Any] | None, quantization: str | None
) -> None:
    found = server("llama", draft=model("eagle3", draft), speculative_algorithm="EAGLE3", **asked)
    assert found.draft is not None and found.draft.quantization == quantization


def test_an_online_draft_stays_so_over_packed_weights() -> None:
    found = server(
        "llama",
        draft=model("eagle3", NVFP4),
        speculative_algorithm="EAGLE3",
        speculative_draft_model_quantization="nvfp4_online",
    )
    assert found.draft is not None and found.draft.quantization == "nvfp4_online"


def test_adaptive_drafts_start_from_one_of_their_steps() -> None:
    asked: dict[str, Any] = {"speculative_algorithm": "EAGLE", "others": {"speculative_adaptive": True}}
    five: dict[str, Any] = {"speculative_num_steps": 5, "speculative_eagle_topk": 1}
    assert _sizes("llama", 13, **asked) == (5, 4, 8)
    assert _sizes("llama", 14, **asked) == (3, 1, 4)
    assert _sizes("llama", 14, **asked, speculative_num_steps=7) == (7, 1, 8)
    assert _sizes("deepseek", 20, **asked, **five) == (5, 1, 6)
    for version in (13, 19):
        with pytest.raises(ConfigError, match="--speculative-num-steps 5: it is none of the steps"):
            _sizes("deepseek", version, **asked, **five)
    assert _sizes("deepseek", 12, **asked, **five) == (5, 1, 6)
    assert _sizes("deepseek", 19, **asked, **five, enable_dp_attention=True, dp_size=2, tp_size=2) == (
        5,
        1,
        6,
    )


@pytest.mark.parametrize(
    "which", ["attention_backend", "prefill_attention_backend", "decode_attention_backend"]
)
def test_branches_are_not_for_trtllm_in_either_phase(which: str) -> None:
    tree: dict[str, Any] = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3,
                            "speculative_eagle_topk": 2, "speculative_num_draft_tokens": 4}  # fmt: skip
    other = {} if which == "attention_backend" else {"attention_backend": "triton"}
    with pytest.raises(ConfigError, match="attention backend trtllm_mha takes 1 only"):
        server("llama", 23, "B200", draft=model("eagle3"), **tree, **{which: "trtllm_mha"}, **other)
    chain = {**tree, "speculative_eagle_topk": 1}
    assert server("llama", 23, "B200", draft=model("eagle3"), **chain, **{which: "trtllm_mha"}, **other).key


def test_a_block_draft_says_whose_width_it_is() -> None:
    def why(algorithm: str, **asked: Any) -> str:
        draft = model("qwen3", **asked.pop("told", {}))
        found = server("qwen3", 23, "H200", draft=draft, speculative_algorithm=algorithm, **asked)
        return found.why["speculative_num_draft_tokens"]

    for algorithm in ("DFLASH", "DSPARK"):
        assert why(algorithm) == f"{algorithm}'s own"
        assert why(algorithm, told={"block_size": 10}) == "the draft's block"


def test_drafts_do_not_adapt_under_dp_attention() -> None:
    adaptive = {"speculative_algorithm": "EAGLE", "others": {"speculative_adaptive": True}}
    groups: dict[str, Any] = {"tp_size": 4, "dp_size": 4, "enable_dp_attention": True}
    for asked, adapts in (({"tp_size": 4}, True), (groups, False)):
        rules = [
            one.rule
            for one in asking.server("glm4", 23, "B200", **asked, **adaptive).reasons.get(
                "speculative_num_steps", ()
            )
        ]
        assert ("adaptive" in rules) == adapts


def test_dflash_says_whose_block_it_drafts() -> None:
    draft = asking.model("qwen3")
    for told, rule in (({"speculative_dflash_block_size": 8}, "the draft's block"), ({}, "DFLASH's own")):
        asked: dict[str, Any] = {"speculative_algorithm": "DFLASH", **told}
        found = asking.server("qwen3", 23, "H200", draft=draft, **asked)
        assert rule in [one.rule for one in found.reasons["speculative_num_draft_tokens"]]


def test_a_draft_that_makes_no_steps_counts_as_one_of_one_branch() -> None:
    """srt/mem_cache/allocation_sizing.py: unset is 1, and NGRAM's tree takes no pages of its own."""
    found = server("qwen3_moe", 13, speculative_algorithm="NGRAM").runtime.speculative
    assert found is not None and found.num_steps == 1 and found.eagle_topk >= 1
    ahead = 2 * max(found.eagle_topk, found.num_draft_tokens) + 64 - 1
    assert table_headroom(found, 64, "all") == max(4 + found.num_draft_tokens, ahead)


@pytest.mark.parametrize(
    ("version", "algorithm", "topk", "page", "columns"),
    [
        (12, "EAGLE", 1, 16, 8),
        (15, "EAGLE", 1, 16, 8),
        (16, "EAGLE", 1, 16, 2 * 4 + 15),
        (12, "EAGLE", 2, 16, 8),
        (13, "EAGLE", 2, 16, 2 * 2 * 32),
        (15, "EAGLE", 2, 16, 2 * 2 * 32),
        (16, "EAGLE", 2, 16, 2 * 2 * 32 + 15),
        (13, "NGRAM", 2, 16, 2 * 2 * 32),
        (14, "NGRAM", 2, 16, 2 * 6),
        (23, "EAGLE", 2, 1, 8),
    ],
)
def test_pages_that_drafts_write_ahead_are_counted_since(
    version: int, algorithm: str, topk: int, page: int, columns: int
) -> None:
    """As get_req_to_token_extra_context_len of each release answers."""
    told = SpeculativeConfig(algorithm, 3, topk, 4)
    assert table_headroom(told, page, RELEASES[version - 12].pages_ahead) == columns


@pytest.mark.parametrize(
    ("version", "section", "asked", "dtype"),
    [
        (16, {"kv_cache_scheme": _FP8_CACHE}, {}, "fp8_e4m3"),
        (17, {"kv_cache_scheme": _FP8_CACHE}, {}, "bfloat16"),
        (17, {"kv_cache_scheme": _FP8_CACHE}, {"kv_cache_dtype": "fp8_e5m2"}, "fp8_e5m2"),
        (23, {}, {}, "bfloat16"),
        (23, {}, {"kv_cache_dtype": "fp8_e4m3"}, "fp8_e4m3"),
    ],
)
def test_a_draft_s_cache_is_of_the_dtype_that_its_own_checkpoint_has(
    version: int, section: dict[str, Any], asked: dict[str, Any], dtype: str
) -> None:
    """0.5.16 writes what the target's says into the argument that its draft reads."""
    target = model("llama", {**MODELOPT_FP8, **section})
    own = model("eagle3", dtype="bfloat16")
    found = server(target, version, "H200", draft=own, speculative_algorithm="EAGLE3", **asked).draft
    assert found is not None and found.kv_cache_dtype == dtype


@pytest.mark.parametrize(
    ("backend", "latent", "since"),
    [
        ("triton", False, 12),
        ("trtllm_mla", True, 12),
        ("trtllm_mha", False, 13),
        ("flashinfer", False, 14),
        ("flashinfer", True, None),
        ("dsa", True, 15),
        ("flashmla", True, 16),
        ("fa3", False, 23),
        ("fa3", True, 23),
    ],
)
def test_catching_up_is_captured_by_attention_and_release(
    backend: str, latent: bool, since: int | None
) -> None:
    """graph_supported_backend of srt/speculative/eagle_worker_v2.py."""
    told = SpeculativeConfig("EAGLE", catches_up_by=backend)
    captured = [one.number[2] for one in RELEASES if catches_up_in_graphs(told, one, latent)]
    assert captured == ([] if since is None else [*range(since, 24)])


def test_the_first_worker_captured_whatever_catches_up() -> None:
    tree: dict[str, Any] = {"speculative_num_steps": 3, "speculative_eagle_topk": 2}
    tree |= {"speculative_algorithm": "EAGLE", "speculative_num_draft_tokens": 4}
    for version, asked, captured in ((12, tree, True), (13, tree, False)):
        found = server("qwen3", version, "H200", draft=model("eagle3"), attention_backend="fa3", **asked)
        told = found.runtime.speculative
        assert told is not None and told.catches_up_by == "fa3"
        assert catches_up_in_graphs(told, found.release, latent=False) is captured


def test_a_draft_catches_up_as_prefills_attend() -> None:
    apart = {"prefill_attention_backend": "fa3", "decode_attention_backend": "triton"}
    told: tuple[dict[str, Any], ...] = (
        {},
        {"speculative_attention_mode": "decode"},
        {"speculative_draft_attention_backend": "flashinfer"},
    )
    found = [server("qwen3", 23, "H200", speculative_algorithm="EAGLE", **apart, **one) for one in told]
    assert [one.drafting_backends for one in found] == [
        ("triton", "fa3"),
        ("triton", "triton"),
        ("flashinfer", "flashinfer"),
    ]


@pytest.mark.parametrize(
    ("version", "backend", "kept"),
    [
        (13, "tc_piecewise", True),
        (14, "tc_piecewise", False),
        (21, "full", False),
        (22, "full", True),
        (23, "breakable", True),
    ],
)
def test_a_target_of_eagles_gives_up_graphs_of_its_prefills(version: int, backend: str, kept: bool) -> None:
    """capture_prefill_graph of srt/model_executor; 0.5.13 has pieces alone."""
    asked: dict[str, Any] = {} if version < 14 else {"cuda_graph_backend_prefill": backend}
    found = server("qwen3", version, "H200", speculative_algorithm="EAGLE", **asked)
    assert found.prefill_graphs and bool(found.runtime.prefill_graphs) == kept
    assert server("qwen3", version, "H200", **asked).runtime.prefill_graphs
