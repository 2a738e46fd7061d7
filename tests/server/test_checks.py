"""Combinations that SGLang's checks refuse: the rows themselves, and how a refusal is told."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from runtime.server.asked import Asked
from runtime.server.checks import ROWS
from runtime.server.checks.row import arguments_in
from runtime.server.checks.serving import _is_bad_rule
from runtime.server.choices import Choices
from runtime.server.errors import ConfigError
from runtime.server.flags import flags_of
from runtime.server.releases import RELEASES
from tests.server.asking import NVFP4, model, server

_CHECKS = Path(__file__).parents[2] / "runtime/server/checks"
_JOINING = {"or", "and", "with", "on", "of", "above", "in", "as"}
_ARGUMENTS = {name for row in RELEASES for name in flags_of(row.version).defaults}
_KNOWN = _ARGUMENTS | {one.name for one in fields(Asked)} | {*vars(Choices)} | {
    "asked", "model", "release", "gpu", "environ", "decode", "prefill", "model_quantization",
}  # fmt: skip


def test_rows_name_arguments_that_some_release_has() -> None:
    source = "".join(file.read_text() for file in _CHECKS.glob("*.py"))
    named = set(re.findall(r"\bc\.(?:asked\.)?(\w+)", source))
    named |= {name for row in ROWS for name in re.findall(r"\[(\w+)\]", row.said)}
    assert named - _KNOWN == set()


def test_a_way_out_names_flags_and_choices_that_some_release_of_its_row_has() -> None:
    for row in ROWS:
        lines = [flags_of(one.version) for one in RELEASES if row.stands_in(one)]
        words = re.findall(r"--[\w-]+(?: \w+)?", row.way if isinstance(row.way, str) else "")
        for name, _, value in (word.partition(" ") for word in words):
            flags = [line.by_name[name] for line in lines if name in line.by_name]
            assert flags, (row.said, row.way)
            choices = {str(one) for flag in flags for one in flag.choices or ()}
            assert not choices or not value or value in choices or value in _JOINING, (row.said, row.way)


def test_values_alone_as_a_way_out_are_possible_for_what_the_row_names() -> None:
    found = 0
    for row in ROWS:
        values = re.split(", | or ", row.way if isinstance(row.way, str) else "--")
        standing = [one for one in RELEASES if row.stands_in(one)]
        lines = [flags_of(one.version).by_field for one in standing]
        named = [by[name] for by in lines for name in arguments_in(row.said) if name in by]
        choices = {str(choice) for flag in named for choice in flag.choices or ()}
        if choices and not any(re.search("[ -]", value) for value in values):
            assert {*values} <= choices, (row.said, row.way)
            found += 1
    assert found >= 2


def test_rows_stand_in_a_release_that_has_their_arguments() -> None:
    for row in ROWS:
        named = set(re.findall(r"\[(\w+)\]", row.said)) & _ARGUMENTS
        standing = [one for one in RELEASES if row.stands_in(one)]
        assert standing, row.said
        assert any(named <= {*flags_of(one.version).defaults} for one in standing), row.said


@pytest.mark.parametrize(
    ("version", "asked", "said"),
    [
        (23, {"others": {"enable_lmcache": True}, "disable_radix_cache": True},
         "--enable-lmcache does not go with --disable-radix-cache"),
        (17, {"chunked_prefill_size": 1000, "page_size": 64},
         "--page-size 64 does not divide --chunked-prefill-size 1000"),
        (12, {"attn_cp_size": 2}, "--attention-context-parallel-size 2 does not divide"
         " --tensor-parallel-size 1"),
        (23, {"attn_cp_size": 2}, "--attn-cp-size 2 does not divide --tp-size 1"),
        (23, {"others": {"gc_threshold": [1, 2, 3, 4]}}, "--gc-threshold 1 2 3 4: 1 to 3 are possible"),
        # what a deprecated flag still sets has no flag of its own name
        (17, {"others": dict.fromkeys(("enable_prefill_context_parallel",
                                       "enable_dsa_prefill_context_parallel"), True)},
         "--enable-prefill-context-parallel does not go with --enable-dsa-prefill-context-parallel"),
    ],
)  # fmt: skip
def test_a_refusal_names_flags_and_values_as_the_release_spells_them(
    version: int, asked: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        server("qwen3", version, "H200", **asked)
    assert refusal.value.message == f"SGLang 0.5.{version} refuses this: {said}"


@pytest.mark.parametrize(
    ("name", "may_be_whole"),
    [("Qwen2_5_VLForConditionalGeneration", True), ("PixtralForConditionalGeneration", False)],
)
def test_an_encoder_that_never_is_whole_is_not_told_to_be(name: str, may_be_whole: bool) -> None:
    towered = model("llama", architectures=[name], vision_config={"hidden_size": 64})
    asked: dict[str, Any] = {"tp_size": 4, "dp_size": 2, "enable_dp_attention": True}
    with pytest.raises(ConfigError, match="this model's encoder needs one rank for attention") as refusal:
        server(towered, 23, "H200", **asked)
    assert ("--mm-enable-dp-encoder" in (refusal.value.remedy or "")) is may_be_whole


@pytest.mark.parametrize(
    ("backend", "drafts"), [("lora_triton", False), ("lora_marlin", False), ("triton", True)]
)
def test_kernels_for_adapters_do_not_draft(backend: str, drafts: bool) -> None:
    asked: dict[str, Any] = {"speculative_algorithm": "EAGLE", "speculative_moe_runner_backend": backend}
    if drafts:
        assert server("qwen3_moe", 23, "H200", **asked).draft
        return
    with pytest.raises(ConfigError, match=r"--speculative-moe-runner-backend lora_.* does not draft"):
        server("qwen3_moe", 23, "H200", **asked)


def test_a_check_is_of_its_releases_alone() -> None:
    groups: dict[str, Any] = {"tp_size": 2, "dp_size": 2, "enable_dp_attention": True}
    overlapping = {**groups, "enable_two_batch_overlap": True}
    with pytest.raises(ConfigError, match="needs --moe-a2a-backend"):
        server("qwen3_moe", 14, "H200", **overlapping)
    assert server("qwen3_moe", 15, "H200", **overlapping).attn_dp_size == 2


def test_the_workspace_of_an_all_to_all_is_as_large_as_the_environment_says() -> None:
    asked: dict[str, Any] = {"tp_size": 4, "moe_a2a_backend": "mori"}
    with pytest.raises(ConfigError, match="SGLANG_MORI_NUM_MAX_DISPATCH_TOKENS_PER_RANK") as refusal:
        server("qwen3_moe", 23, "H200", **asked)
    assert "raise" in (refusal.value.remedy or "")
    assert server("qwen3_moe", 23, "H200", **asked, chunked_prefill_size=4096).ep_size == 4


def test_a_colon_is_for_adapters_unless_it_is_a_stores() -> None:
    with pytest.raises(ConfigError, match="--served-model-name"):
        server("qwen3", 23, "H200", model_path="org/model:fp8")
    assert server("qwen3", 23, "H200", model_path="s3://bucket/model").tp_size == 1


def test_spread_weights_are_data_parallel_attention_without_graphs() -> None:
    found = server(model("llama4"), 18, "B200", tp_size=4, dwdp_size=4, moe_runner_backend="triton")
    assert (found.attn_dp_size, found.ep_size, found.decode_graphs) == (4, 4, ())


_FUSED = model(
    "mimo",
    architectures=["MiMoV2ForCausalLM"],
    attention_projection_layout="fused_qkv",
    num_key_value_heads=4,
)
_EXAONE = model("llama", architectures=["Exaone4ForCausalLM"], sliding_window_pattern="LLLG")
_WIDE = model("llama", head_dim=128, v_head_dim=64)
_DUAL = model("llama", dual_chunk_attention_config={"chunk_size": 1})
_SENT: dict[str, Any] = {
    "tp_size": 4, "dp_size": 4, "enable_dp_attention": True, "moe_a2a_backend": "flashinfer",
    "moe_runner_backend": "flashinfer_cutlass",
}  # fmt: skip
_CUTEDSL = {**_SENT, "moe_runner_backend": "flashinfer_cutedsl"}
_ONE_POOL: dict[str, Any] = {"others": {"enable_unified_memory": True}}
_HYBRID = model("llama", architectures=["Qwen3NextForCausalLM"], model_type="qwen3_next")
_POOLED: dict[str, Any] = {"speculative_algorithm": "EAGLE", **_ONE_POOL, "attention_backend": "triton"}
_SHARED_PREFILL: dict[str, Any] = {
    "tp_size": 2, "attn_cp_size": 2, "others": {"enable_prefill_cp": True, "cp_strategy": "zigzag"},
}  # fmt: skip
_DRAFT = "speculative_draft_attention_backend"


@pytest.mark.parametrize(
    ("checkpoint", "version", "gpu", "asked", "said"),
    [
        (_FUSED, 22, "H200", {"tp_size": 8}, "MiMo-V2's projections"),
        (_FUSED, 22, "H200", {"tp_size": 4}, None),
        (_FUSED, 22, "H200", {"tp_size": 8, "dp_size": 2, "enable_dp_attention": True}, None),
        (_FUSED, 22, "H200", {"tp_size": 8, "others": {"encoder_only": True}}, None),
        *((_EXAONE, 23, "H200", {"attention_backend": one}, None) for one in ("triton", "fa3")),
        (_EXAONE, 23, "B200", {"attention_backend": "trtllm_mha"}, None),
        (_EXAONE, 23, "H200", {"attention_backend": "flashinfer"}, "EXAONE does not run on"),
        ("llama", 23, "H200", {"attention_backend": "flashinfer"}, None),
        (_WIDE, 18, "H200", {"attention_backend": "triton", **_ONE_POOL}, None),
        (_WIDE, 19, "H200", {"attention_backend": "triton", **_ONE_POOL}, "keys as wide as values"),
        (_WIDE, 22, "H200", {"attention_backend": "fa3", **_ONE_POOL}, "keys as wide as values"),
        (model("deepseek", head_dim=192), 22, "B200", _ONE_POOL, None),
        (_WIDE, 23, "H200", {"attention_backend": "triton", **_ONE_POOL}, None),
        (_WIDE, 23, "H200", {"attention_backend": "fa3", **_ONE_POOL}, None),
        (_WIDE, 23, "H200", {"attention_backend": "flashinfer", **_ONE_POOL}, "these attention backends"),
        (_HYBRID, 22, "H200", _POOLED, None),
        (_HYBRID, 22, "H200", {**_POOLED, _DRAFT: "fa3"}, None),
        (_HYBRID, 22, "H200", {**_POOLED, _DRAFT: "trtllm_mha"}, "does not draft on this backend"),
        (_HYBRID, 23, "H200", {**_POOLED, _DRAFT: "trtllm_mha"}, None),
        (_HYBRID, 23, "H200", {**_POOLED, _DRAFT: "fa4"}, "does not draft on this backend"),
        (_HYBRID, 22, "H200", {**_POOLED, "attention_backend": "fa3"}, None),
        (_HYBRID, 22, "B200", {**_POOLED, "attention_backend": "trtllm_mha"}, "not draft on these attention"),
        (_HYBRID, 23, "B200", {**_POOLED, "attention_backend": "trtllm_mha"}, None),
        *(("gpt_oss", one, "B200", _ONE_POOL, None) for one in (21, 23)),
        ("gpt_oss", 22, "B200", _ONE_POOL, "captures no decode on trtllm_mha"),
        ("gpt_oss", 22, "B200", {"disable_cuda_graph": True, **_ONE_POOL}, None),
        ("qwen3", 22, "H200", _POOLED, "models of mixed layers only"),
        ("nemotron", 23, "H200", {"tp_size": 2, "attn_cp_size": 2}, "NemotronH does not go with"),
        ("nemotron", 20, "H200", {"tp_size": 2, "attn_cp_size": 2}, None),
        ("longcat", 23, "H200", _SHARED_PREFILL, "LongCat does not go with"),
        ("longcat", 23, "H200", {"tp_size": 2, "attn_cp_size": 2}, None),
        (_DUAL, 19, "H200", {"attention_backend": "fa3"}, "a model with dual chunks"),
        (_DUAL, 19, "H200", {}, None),
        (_DUAL, 19, "H200", {"attention_backend": "dual_chunk_flash_attn"}, None),
        (_DUAL, 20, "H200", {"attention_backend": "fa3"}, None),
        ("qwen3_moe", 21, "H200", {**_SENT, "cuda_graph_max_bs": 4097}, None),
        ("qwen3_moe", 22, "H200", {**_SENT, "cuda_graph_max_bs": 4096}, None),
        ("qwen3_moe", 22, "H200", {**_SENT, "cuda_graph_max_bs": 4097}, "a rank's tokens are more"),
        (model("deepseek", NVFP4), 13, "B200", {**_CUTEDSL, "max_prefill_tokens": 4096}, None),
        (model("deepseek", NVFP4), 13, "B200", {**_CUTEDSL, "max_prefill_tokens": 4097}, "on all ranks"),
        (model("deepseek", NVFP4), 21, "B200", {**_CUTEDSL, "max_prefill_tokens": 4097}, "on all ranks"),
        (model("deepseek", NVFP4), 22, "B200", {**_CUTEDSL, "max_prefill_tokens": 4097}, None),
    ],
)
def test_what_only_some_checkpoints_and_sizes_meet(
    checkpoint: Any, version: int, gpu: str, asked: dict[str, Any], said: str | None
) -> None:
    if said is None:
        assert server(checkpoint, version, gpu, **asked).key
        return
    with pytest.raises(ConfigError) as refusal:
        server(checkpoint, version, gpu, **asked)
    assert said in refusal.value.message


_GLM_5 = model("deepseek", architectures=["GlmMoeDsaForCausalLM"], model_type="glm_moe_dsa", index_topk=2048)
_SHARING: dict[str, Any] = {
    "tp_size": 4, "attn_cp_size": 4, "kv_cache_dtype": "fp8_e4m3", "page_size": 64,
    "disaggregation_mode": "prefill", "chunked_prefill_size": 8192,
    "enable_kv_cache_sharding": True, "enable_prefill_cp": True, "cp_strategy": "interleave",
    "dsa_prefill_backend": "trtllm", "dsa_decode_backend": "trtllm",
    "disaggregation_transfer_backend": "mooncake",
}  # fmt: skip


def _shared(**changed: Any) -> Any:
    told = {**_SHARING, **changed}
    own = {name: told.pop(name) for name in [*told] if name in {one.name for one in fields(Asked)}}
    return server(_GLM_5, 23, "B200", **own, others=told)


@pytest.mark.parametrize(
    "changed",
    [
        {"enable_prefill_cp": False},
        {"cp_strategy": "zigzag"},
        {"dsa_prefill_backend": "flashmla_sparse"},
        {"dsa_decode_backend": "flashmla_kv"},
        {"disaggregation_transfer_backend": "nixl"},
        {"enable_dsa_cache_layer_split": True},
        {"kv_cache_dtype": "bfloat16"},
        {"pp_size": 2},
    ],
)
def test_a_sharded_cache_of_sparse_attention_wants_all_of_it_at_once(changed: dict[str, Any]) -> None:
    assert _shared().key and _shared(disaggregation_transfer_backend="mooncake_tcp").key
    with pytest.raises(ConfigError, match="wants sparse attention on trtllm"):
        _shared(**changed)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ssl_keyfile", "ssl_certfile"),
        ("ssl_certfile", "ssl_keyfile"),
        ("ssl_ca_certs", "ssl_certfile"),
        ("ssl_keyfile_password", "ssl_keyfile"),
        ("enable_ssl_refresh", "ssl_certfile"),
    ],
)
def test_what_encrypts_stands_with_what_it_needs(one: str, other: str) -> None:
    both = {"ssl_keyfile": "k", "ssl_certfile": "c"}
    assert server("qwen3", 23, "H200", others={**both, one: "x"}).key
    with pytest.raises(ConfigError, match=f"--{one.replace('_', '-')}.* needs --{other.replace('_', '-')}"):
        server("qwen3", 23, "H200", others={one: "x"})


@pytest.mark.parametrize(
    ("a2a", "shares"),
    [(name, True) for name in ("deepep", "megamoe", "mooncake", "ascend_fuseep", "mori")]
    + [(name, False) for name in ("none", "nixl")],
)
def test_kimi_k3_shares_its_shared_experts_behind_some_all_to_alls(a2a: str, shares: bool) -> None:
    said = ""
    try:
        server("kimi_k3", 23, "B200", tp_size=8, moe_a2a_backend=a2a, others={"shared_experts_tp_size": 4})
    except ConfigError as refusal:
        said = refusal.message
    assert ("--shared-experts-tp-size 4 does not go with" in said) is not shares


@pytest.mark.parametrize(
    ("algorithm", "layers", "said"),
    [
        ("EAGLE", [1], "needs --speculative-algorithm EAGLE3, DFLASH or DSPARK"),
        ("EAGLE3", None, None),
        ("EAGLE3", [0, 2], None),
        ("EAGLE3", [-1], "a layer's number is at least 0, and named once"),
        ("EAGLE3", [1, 2, 1], "a layer's number is at least 0, and named once"),
        ("DSPARK", None, "needs --return-aux-hidden-state-layer-ids"),
        ("DSPARK", [1, 2], None),
        ("dspark", [1, 2], None),
    ],
)
def test_hidden_states_are_returned_of_layers_that_are_named(
    algorithm: str, layers: list[int] | None, said: str | None
) -> None:
    others = {"enable_return_aux_hidden_states": True, "return_aux_hidden_state_layer_ids": layers}
    drafts = model("qwen3", dspark_block_size=5)
    if said is None:
        found = server(drafts, 23, "H200", speculative_algorithm=algorithm, others=others)
        assert found.speculative is None and found.draft is None
    else:
        with pytest.raises(ConfigError, match=said):
            server(drafts, 23, "H200", speculative_algorithm=algorithm, others=others)


@pytest.mark.parametrize(
    ("groups", "contexts", "fits", "not_"),
    [(1, 1, 8, 16), (1, 1, 1, 3), (2, 1, 4, 8), (4, 1, 2, 4), (2, 2, 2, 4), (8, 1, 1, 2)],
)
def test_shared_experts_are_split_over_ranks_of_attention(
    groups: int, contexts: int, fits: int, not_: int
) -> None:
    asked: dict[str, Any] = {"tp_size": 8, "moe_a2a_backend": "deepep", "attn_cp_size": contexts}
    asked |= {"dp_size": groups, "enable_dp_attention": groups > 1}
    for size in (not_, 0, -1):
        with pytest.raises(ConfigError, match="does not divide the ranks of attention"):
            server("kimi_k3", 23, "B200", **asked, others={"shared_experts_tp_size": size})
    assert server("kimi_k3", 23, "B200", **asked, others={"shared_experts_tp_size": fits})


@pytest.mark.parametrize(
    ("rule", "is_bad"),
    [
        (None, False), ([], False), (["default"], False), (["default", "2", "2", "2"], True),
        (["tse", "1", "2", "8"], False), (["tse", "1", "2"], True), (["tse", "1", "1", "8"], True),
        (["custom", "0", "0.5", "1"], False), (["custom", "1", "-1"], True), (["custom", "1", "1"], True),
        (["custom"], True), (["other", "1", "2", "8"], True),
    ],
)  # fmt: skip
def test_a_rule_of_buckets_is_one_of_three(rule: list[str] | None, is_bad: bool) -> None:
    assert _is_bad_rule(rule) is is_bad
