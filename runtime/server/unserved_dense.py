"""... of dense families, whose layers add up what all ranks answer."""

from __future__ import annotations

from runtime.server.unserved_row import (
    DRAFTS,
    OVER_ALL_RANKS,
    PLAIN_ALONE,
    QUANTIZED,
    SCALED_KEYS,
    Row,
    in_bfloat16,
)
from runtime.server.unserved_when import (
    absorbs_by_one_scale,
    attends_by,
    by_logits,
    has_windows,
    lowers_packed,
    moves_experts,
    not_each_by_itself,
    scales_as_one,
)

_BEHIND_ITS_TABLE = Row(
    lambda m, s: s.context_length > m.max_position,
    "a longer context than its table of positions has rows",
)
_BY_ONE_SCALE = "kv_b_proj in fp8 a row: its class multiplies all rows by the first one's scale"
_WITH_ALL_LAYERS = Row(
    lambda _, s: s.pp_size > 1, "--pp: each stage keeps a place for the tokens of all layers"
)

# srt/models/transformers.py asks how many ranks all are, and tells nobody how far its layers see
OF_TRANSFORMERS = (
    Row(lambda _, s: s.attn_dp_size > 1, "DP attention: its heads are split over all ranks"),
    Row(lambda _, s: s.pp_size > 1, "--pp: what stages of transformers' layers keep is not known here"),
    Row(
        lambda _, s: s.asked.is_embedding,
        "--is-embedding: what transformers' layers make of a prompt is not known here",
    ),
    Row(
        lambda m, s: has_windows(m) and bool(attends_by(s) - {"fa3", "trtllm_mha"}),
        "attention but on fa3 or trtllm_mha: others ask a class how far behind a window its layers see",
    ),
    Row(
        lambda m, s: m.moe is not None and (s.ep_size > 1 or s.moe_a2a_backend != "none"),
        "--ep or an all-to-all: ranks of whole experts do not add up what each answers",
    ),
    Row(
        lambda m, s: m.moe is not None and moves_experts(m, s),
        "experts that move: which layer's they are is counted otherwise",
    ),
    Row(
        lambda m, s: m.moe is not None and by_logits(m, s),
        "experts but on triton or flashinfer_cutlass: others choose them by themselves",
    ),
    Row(
        lambda m, s: m.names.packs_groups and s.weights_quantization in ("fp8", "mxfp8"),
        "weights in fp8 or mxfp8: whose scales queries, keys and values of one matrix have is not known here",
    ),
    Row(
        not_each_by_itself,
        "quantized weights but a checkpoint's in fp8, AWQ and GPTQ, and those that a server makes in fp8 and "
        "mxfp8: of others it is not known here",
    ),
    DRAFTS,
)

# srt/models/mllama.py, moss_vl.py: what a backend gives layers that has none of images is not read here
_OF_IMAGES = (
    Row(
        lambda _, s: bool(attends_by(s) - {"fa3", "flashinfer"}),
        "attention but on fa3 or flashinfer: others do not tell images from text",
    ),
    Row(
        lambda _, s: s.disaggregation_mode != "null",
        "disaggregation: what becomes of images between its servers is not known here",
    ),
    Row(
        lambda m, s: s.tp_size > m.main_attention.num_kv_heads,
        "more ranks than KV heads: its class takes those that ranks share for none",
    ),
    Row(lambda _, s: s.pp_size > 1, "--pp: its class has no stages"),
    DRAFTS,
)
DENSE = {
    # srt/layers/activation.py
    "apertus": (
        in_bfloat16("the numbers of its activation have no other"),
        DRAFTS,
    ),
    **dict.fromkeys(("stablelm", "olmo", "phi", "chatglm", "qwen", "exaone", "starcoder2"), (DRAFTS,)),
    **dict.fromkeys(("minicpm", "orion", "xverse", "TeleFLM", "persimmon"), (DRAFTS,)),
    # srt/models/granite.py
    "granite_swa": (OVER_ALL_RANKS, DRAFTS),
    # srt/models/minicpm3.py takes its matrix of keys and values apart by rows, and knows no names but its own
    "minicpm3": (OVER_ALL_RANKS, SCALED_KEYS, Row(absorbs_by_one_scale, _BY_ONE_SCALE, plans=True), DRAFTS),
    "gptj": (DRAFTS,),
    # srt/models/phi3_small.py, where groups of heads are one matrix, and gates and ups take turns in another
    "phi3small": (
        Row(
            lambda _, s: s.tp_size > 1,
            "several ranks: SGLang's class cuts its heads and its MLPs elsewhere than their files do",
        ),
        DRAFTS,
    ),
    # srt/models/gpt2.py turns what it reads of a weight over, as files of GPT-2 have it the other way round
    "gpt2": (
        _BEHIND_ITS_TABLE,
        Row(
            lambda m, _: m.checkpoint_quantization not in (None, "awq", "gptq"),
            "quantized weights of a checkpoint but in AWQ and GPTQ: which way round others lie is unknown",
        ),
        DRAFTS,
    ),
    # srt/models/gpt_bigcode.py, whose head of keys and values every rank has
    "gpt_bigcode": (
        OVER_ALL_RANKS,
        _BEHIND_ITS_TABLE,
        Row(
            scales_as_one,
            "quantized weights of a checkpoint but in AWQ and fp8 a tensor: its class takes the scales of "
            "queries for those of keys and values",
        ),
        DRAFTS,
    ),
    # srt/models/nanbeige.py asks how many ranks all are
    "nanbeige": (OVER_ALL_RANKS, DRAFTS),
    # srt/models/iquest_loopcoder.py, whose attention is given no keys, or a window that no class tells
    "iquestloopcoder": (
        Row(
            lambda _, s: bool(attends_by(s) - {"fa3", "trtllm_mha"}),
            "attention but on fa3 or trtllm_mha: in later rounds others see other tokens, or end",
        ),
        DRAFTS,
    ),
    # srt/models/gemma3n_causal.py
    "gemma3n_text": (
        Row(
            lambda m, s: m.encoder is not None and s.dtype != "bfloat16",
            "another dtype than bfloat16: its tower stays in that of its own section",
        ),
        OVER_ALL_RANKS,
        Row(
            lowers_packed, "quantized coefficients of its streams: it lowers the largest, which are then none"
        ),
        QUANTIZED,
        DRAFTS,
    ),
    # srt/models/opt.py, which does not say where a stage begins
    "opt": (
        Row(
            lambda m, s: s.asked.load_format == "dummy" and _WITH_ALL_LAYERS.when(m, s), _WITH_ALL_LAYERS.said
        ),
        _BEHIND_ITS_TABLE,
        Row(
            lambda m, s: m.tables is not None and s.weights_quantization is not None,
            "quantized weights beside tables of another width than rows: what is between is not known here",
        ),
        DRAFTS,
    ),
    # srt/models/spark2_5.py, whose layers gather no rows before 0.5.22
    "spark2_5": (
        Row(lambda _, s: s.attn_dp_size > 1, "DP attention: which rows its MLPs see is not known here"),
        DRAFTS,
    ),
    # srt/models/baichuan.py: of other widths it has alibi's slopes, which its attention is not given on a GPU
    "baichuan": (
        Row(
            lambda m, _: m.hidden_size != 4096,
            "rows of another width than 4096: SGLang's class tells their tokens no places",
        ),
        Row(
            lambda m, _: m.unit_head and m.quantized.of_head() is not None,
            "a quantized head: its rows are made one long as they are read, and these are none",
        ),
        DRAFTS,
    ),
    # srt/models/paddleocr_vl.py
    "paddleocr_vl_text": (SCALED_KEYS, DRAFTS),
    # srt/models/muse_glimmer.py takes queries, keys and values apart where they are quantized
    "muse_glimmer_text": (PLAIN_ALONE, DRAFTS),
    # srt/models/solar.py
    "solar": (
        Row(lambda _, s: s.pp_size > 1, "--pp: what a layer is given may lie on another stage"),
        DRAFTS,
    ),
    "mllama_text_model": _OF_IMAGES,
    # srt/models/moss_vl.py has no list of its text's matrices
    "moss_vl_text": (*_OF_IMAGES, PLAIN_ALONE),
    # srt/models/nemotron_nas.py, which does not say where a stage begins
    "nemotron-nas": (_WITH_ALL_LAYERS, DRAFTS),
}
