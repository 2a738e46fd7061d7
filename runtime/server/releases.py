"""A row a release of SGLang: what it pins, and every switch that ever changed, with the file it was read in.

A row is the one before it and what is new. The next release: one more row, and the flags a tool writes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

from runtime.server import architectures as names
from runtime.server.block_rules import BLOCKS_12, BLOCKS_15, BLOCKS_21, BLOCKS_22, BlockRules
from runtime.server.compressed_rules import (
    COMPRESSED_12,
    COMPRESSED_13,
    COMPRESSED_15,
    COMPRESSED_18,
    COMPRESSED_20,
    COMPRESSED_21,
    COMPRESSED_22,
    CompressedRules,
)
from runtime.server.errors import ConfigError
from runtime.server.laid_out import (
    LAID_OUT_12,
    LAID_OUT_14,
    LAID_OUT_15,
    LAID_OUT_16,
    LAID_OUT_18,
    LaidOut,
)
from runtime.server.sparse_rules import SPARSE_12, SPARSE_17, SPARSE_20, SPARSE_22, SparseRules
from runtime.server.version_number import number

_BLACKWELL_MAJORS = (10, 12)
FLASH_ATTENTION = ("fa3", "fa4")
_BESIDE_DELTAS = ("triton", "trtllm_mha", "fa4", "flashinfer")
_ALGORITHMS = ("DFLASH", "EAGLE", "EAGLE3", "FROZEN_KV_MTP", "STANDALONE", "NGRAM")
_GOES_WITH = (
    *(("modelopt_fp8", "modelopt"), ("modelopt_fp4", "modelopt"), ("modelopt_mixed", "modelopt")),
    *(("w8a8_int8", "compressed-tensors"), ("w8a8_int8", "compressed_tensors")),
    *(("w8a8_fp8", "compressed-tensors"), ("w8a8_fp8", "compressed_tensors")),
    ("petit_nvfp4", "modelopt"),
)
EagerInputs = Literal["none", "a chunk", "the pool"]
PdGraphs = Literal["none where piecewise is off", "none in prefill", "by role"]
CapturedMixers = Literal["all", "none", "of experts on sm120"]
ExpertLayout = Literal["masked", "by experts", "by memory"]
Wide = Literal["copied", "stored"]  # in float32, where the model is not
PrefillStates = Literal["kept", "counted", "none"]
PagesAhead = Literal["none", "of any tree", "of a draft's tree", "all"]  # NGRAM's tree writes no keys
CuteObjects = Literal["not kept", "on demand", "kept"]
EmbeddingGemma = Literal["unknown", "by flags", "by backends"]  # how it is told what it attends with
_13_FUSED = names.FUSED_ALL_REDUCE | {"MistralLarge3ForCausalLM"}
_14_FUSED = _13_FUSED | {
    "NemotronHForCausalLM",
    "NemotronHPuzzleForCausalLM",
    "Qwen3VLMoeForConditionalGeneration",
}
_18_FUSED = _14_FUSED | {"DeepseekV4ForCausalLM"}
_20_FUSED = _18_FUSED | {"NemotronH_Omni_Reasoning_V3", "Qwen4ExpForConditionalGeneration"}
_EAGER = names.DEEPSEEK_V4 | {"Qwen3NextForCausalLM", "BailingMoeV2_5ForCausalLM", "LLaDAModelLM"}
_COMPILED_OFF_WITH = (
    *("this architecture", "a multimodal model", "DP attention", "torch.compile", "pipeline parallelism"),
    *("an all-to-all", "LoRA", "GGUF", "a diffusion LLM", "offloaded weights", "a hierarchical cache"),
    *("deterministic inference", "disaggregation", "symmetric memory", "recorded experts"),
    *("context parallelism", "debugging graphs"),
)
_BREAKABLE_OFF_WITH = ("DeepSeek-V4", "context parallelism", "a multimodal model")
_ABSORBED_MLA = frozenset({
    "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM",
    "MistralLarge3ForCausalLM", "PixtralForConditionalGeneration",
})  # fmt: skip
_WITHOUT_RULES = frozenset({"Lfm2MoeForCausalLM", "KimiK3LinearForCausalLM"})
_FIRST_STATE_KEEPERS = names.NEMOTRON_H | names.QWEN_HYBRID | {"MiniCPMV4_6ForConditionalGeneration"}


class Release(NamedTuple):
    version: str
    # pyproject.toml
    flashinfer: str
    transformers: str
    # The key's parts: srt/model_executor/runner/flashinfer_autotune.py (before, in model_runner.py)
    candidate_selection: str | None = None
    key_has_skipped_ops: bool = False
    always_skipped_ops: tuple[str, ...] = ()
    key_has_draft_quantization: bool = False
    megamoe_files_by_gpu: bool = False
    # Rank files that differ are all deleted: the same file
    deletes_unequal_ranks: bool = False
    # The file is saved again at every start, so that it must be writable: the same file
    always_saves: bool = False
    # The CUTLASS call's range: srt/layers/moe/moe_runner/flashinfer_cutlass.py
    ranges_by_chunk: bool = False
    # FlashInfer's default, later SGLANG_FLASHINFER_MOE_FUSED_FINALIZE: srt/layers/quantization/unquant.py
    fused_finalize_unset: bool = True
    fused_finalize_by_environment: bool = False
    # SGLANG_FLASHINFER_AUTOTUNE_EXTEND: srt/environ.py
    has_extend_pass: bool = False
    # The gate beside the MoE backend: should_run_flashinfer_autotune of flashinfer_autotune.py
    fp4_gemm_gates: bool = False
    fp8_gemm_gates: bool = False
    # An unset --fp4-gemm-backend, but for sm100's flashinfer_cutedsl: srt/layers/quantization/fp4_utils.py
    fp4_gemm_before_blackwell: str = "flashinfer_cutlass"
    fp4_gemm_on_sm120: str = "flashinfer_cudnn"
    # DeepSeek's shared experts in nvfp4, activated by the kernel that multiplies: models/deepseek_v2.py
    fuses_nvfp4_swiglu: bool = False
    # Absorbed fp8 products of latent attention, through FlashInfer: deepseek_common's forward_mla.py
    absorbs_by_flashinfer: bool = False
    # Dense modelopt fp8 through FlashInfer's fp8_gemm, on Hopper too: srt/layers/quantization/fp8_utils.py
    tunes_fp8_gemm: bool = False
    # Majors on which modelopt's fp8 GEMMs are FlashInfer's: the same file
    fp8_gemm_majors: tuple[int, ...] = (10,)
    # Where its layers ask for them: the gate may be open for another reason
    fp8_gemm_layers: tuple[int, ...] = ()
    # What stays of matrices when they are loaded: the same folder
    laid_out: LaidOut = LAID_OUT_12
    # A chosen --fp8-gemm-backend flashinfer_cutlass opens it, whatever the weights, but for some
    chosen_fp8_gemm_tunes: bool = False
    never_by_chosen_fp8_gemm: tuple[str, ...] = ()
    # An unset one becomes flashinfer_cutlass for mxfp8 on sm100: the same fp8_utils.py
    mxfp8_runs_cutlass_gemm: bool = False
    # Methods whose GEMMs are mm_mxfp8, tuned on every Blackwell: the same file
    mxfp8_gemm_methods: tuple[str, ...] = ()
    # Block fp8 in groups of 32, its scales powers of two, runs on them too, and opens the gate: the same file
    block_fp8_runs_as_mxfp8: bool = False
    block_fp8_as_mxfp8_gates: bool = False
    # Windows' pool is bounded by requests where no prefix is kept: srt/model_executor/pool_configurator.py
    bounds_windows_by_requests: bool = False
    asks_windows_for_a_request: bool = False  # a pool behind windows that holds none ends a start
    deterministic_never_tunes: bool = False
    tunes_drafts: bool = False
    # A draft's gate asks --speculative-moe-runner-backend, before the target's own
    drafts_gate_by_their_backend: bool = False
    # ModelOpt's quant_algo: srt/configs/model_config.py
    mixed_by_layers: bool = False
    fp8_algorithms_apart: bool = False
    # Pairs of argument and checkpoint that go together: the same file, _verify_quantization
    goes_with: tuple[tuple[str, str], ...] = _GOES_WITH
    # What srt/layers/quantization/__init__.py no longer registers
    dropped_methods: tuple[str, ...] = ()
    # gpt-oss's experts on sm120: srt/arg_groups/model_overrides/gpt_oss.py
    mxfp4_on_sm120: str = "triton_kernel"
    # Where they run on FlashInfer's CUTLASS kernels: srt/layers/quantization/mxfp4.py
    mxfp4_by_cutlass: tuple[int, ...] = ()
    # DeepSeek-V4's, beside fp8, on the same kernels, and on TRT-LLM's made a multiple of a tile: fp8.py and
    # mxfp4_flashinfer_trtllm_moe.py beside it
    fp4_beside_fp8_by_cutlass: tuple[int, ...] = (9,)
    pads_fp4_beside_fp8: bool = False
    # ... on CUTLASS's, their scales are held as the checkpoint has them while it is loaded
    narrow_fp4_scales: bool = False
    # A mixed checkpoint's nvfp4 experts beside fp8: srt/model_loader/loader.py
    reads_nvfp4_beside_fp8: bool = False
    # modelopt_fp4's experts: srt/arg_groups/overrides.py, _moe_runner_backend_quant_constraints
    nvfp4_runs_cutlass_on: tuple[int, ...] = ()
    # Its gated experts on TRT-LLM's kernels are of a multiple of these: modelopt_quant.py
    nvfp4_trtllm_rows: int = 16
    # ... and mxfp4 ones: mxfp4.py beside it
    mxfp4_trtllm_rows: int = 256
    # srt/arg_groups/moe_hook.py
    flashinfer_a2a_needs_dp: bool = False
    # Without an all-to-all every rank picks the same copy of an expert: srt/eplb/expert_location_dispatch.py
    copies_agree: bool = False
    # Recorders of experts ask how DeepEP dispatches behind its all-to-all alone: expert_distribution.py there
    records_by_any_a2a: bool = True
    # The all-to-alls that --enable-waterfill leaves, and whether the one that it replaces is checked, too.
    waterfills_over: tuple[str, ...] = ("deepep",)
    checks_a2a_as_asked: bool = False
    # arg_groups/serving_hook.py
    tokenspeed_is_cutedsl: bool = False
    flashinfer_a2a_needs_chunks: bool = False
    dispatch_tokens_by_ranks: bool = True
    deepep_cutedsl_is_low_latency: bool = False
    dispatch_type_routes: bool = False
    # srt/arg_groups/speculative_hook.py
    algorithms: tuple[str, ...] = _ALGORITHMS
    # Of adaptive drafts: all candidate_steps of srt/speculative/adaptive_spec_params.py
    adaptive_steps: tuple[int, ...] = ()
    adaptive_sizes: bool = False
    ngram_counts_steps: bool = False
    dflash_shares_heads: bool = False
    pages_with_topk: tuple[str, ...] = ("flashinfer", "fa3")
    # fp8 experts run on Triton where flashinfer_cutlass is asked for: srt/layers/quantization/fp8.py
    runs_fp8_experts_elsewhere: bool = False
    # How trtllm calls are routed: srt/layers/moe/moe_runner/flashinfer_trtllm.py
    routes_fp8_under_ep: bool = False
    routes_apart: bool = False
    # trtllm kernels route for the families that say how, and by config.json's word: srt/layers/moe/topk.py
    routes_by_named_method: bool = False
    # Experts that are given weighted rows, on CUTLASS's: moe_runner/flashinfer_cutlass.py beside it
    weighted_rows: Literal["as others", "refused", "of one expert"] = "as others"
    defers_finalising: bool = False
    # A hierarchical cache, HostKVCache: more tokens than the GPU's, and a buffer for pages on their way out;
    # since 0.5.19 ranks of a host share what it has. srt/mem_cache/memory_pool_host.py, pool_host/base.py
    host_cache_layout: str = "layer_first"
    host_cache_is_larger: bool = True
    host_cache_has_windows: bool = False
    fits_host_cache: bool = False  # its default size, into what a host has: mem_cache/hicache_auto_size.py
    stages_write_backs: bool = False
    ranks_share_host: bool = False
    finds_layers_in_pages: bool = False  # of heads that lie so: pool_host/mha.py
    # Of shared prefills, --attn-cp-size counts where they are interleaved: model_overrides/deepseek_v2.py
    keeps_context_width: bool = False
    # Whether --enable-dp-attention counts where dp is 1: srt/server_args.py, arg_groups/parallel_hook.py
    dp_attention_of_one: bool = True
    # Which prefill graphs: _handle_piecewise_cuda_graph in server_args.py, arg_groups/cuda_graph_hook.py
    prefill_graph_backend: str = "tc_piecewise"
    decode_graph_backends: tuple[str, ...] = ("full", "breakable", "tc_piecewise", "disabled")
    prefill_graph_backends: tuple[str, ...] = ("breakable", "tc_piecewise", "disabled")
    # --disable-cuda-graph is about prefills, too
    one_switch_for_graphs: bool = False
    pd_graphs: PdGraphs = "none where piecewise is off"
    compiled_off_with: tuple[str, ...] = _COMPILED_OFF_WITH
    breakable_off_with: tuple[str, ...] = ()
    eager_prefill_architectures: frozenset[str] = _EAGER | {"DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM"}
    # Multimodal models whose language model is captured: configs/model_config.py
    compiled_architectures: frozenset[str] = frozenset()
    breakable_multimodal: frozenset[str] = frozenset()
    uncompiled_experts: tuple[str, ...] = ("flashinfer_trtllm", "flashinfer_mxfp4")
    aligns_deepep_graphs: bool = False
    trtllm_mla_has_prefill_graphs: bool = True
    unified_memory_has_prefill_graphs: bool = True
    unified_memory_checks_whole_prefills: bool = False
    # How large they are: _handle_gpu_memory_settings in server_args.py, arg_groups/memory_hook.py
    context_caps_prefill_graphs: bool = False
    fits_prefill_graphs: bool = False
    caps_pipelined_prefill_graphs: bool = False
    requests_cap_decode_graphs: bool = False
    mla_prefill_graph_top: int = 2048
    glm_5_next_prefill_graph_top: int | None = None
    mla_prefill_graphs_fit_chunk: bool = False
    small_gpu_chunk: int = 2048
    small_gpu_graphs: tuple[int, int] = (24, 80)
    # What is kept free: the same functions
    fraction_without_gpu: float = 0.88
    reserves_for_drafts: bool = True
    reserves_by_role: bool = False
    # A server that decodes for others, of groups of one rank: srt/arg_groups/overrides.py
    exchanges_logits: bool = False
    # For images, of what is the pool's: srt/mem_cache/kv_cache_configurator.py
    reserves_for_images: bool = False
    pd_decode_has_encoder: bool = True
    # What families ask of attention: _handle_model_specific_adjustments, arg_groups/model_overrides
    deepseek_family: frozenset[str] = names.DEEPSEEK_FAMILY
    sparse_architectures: frozenset[str] = names.SPARSE
    sparse_backend: str = "nsa"
    sparse: SparseRules = SPARSE_12  # its kernels
    pools_sparse_pages: bool = False
    keeps_sink_kv_wide: bool = False
    gemma_4_on_trtllm: bool = False
    gemma_4_on_fa4: bool = False
    spares_tree_places: bool = False  # behind a context: srt/layers/attention/flashattention_backend.py
    step_3p5_has_defaults: bool = False
    mimo_v2_on_fa4: bool = False
    inkling_on_fa4: tuple[int, ...] = (10,)
    has_minimax_m3: bool = False
    minimax_m3_attends_in_fp8: bool = False
    serves_nvfp4_minimax: bool = False
    quantizes_modelopt_fp4: bool = False  # experts of a checkpoint that is not quantized, while it loads
    # Its indexer's keys are as small as the cache on these GPUs; when the pool is sized, too
    fp8_block_keys_on: tuple[int, ...] = ()
    pins_paged_blocks_on: tuple[int, ...] = ()  # where Triton times nothing of a decode that chooses blocks
    counts_fp8_block_keys: bool = False
    # Of sparse attention's fp8 latents its size counts the scales, too: model_executor/pool_configurator.py
    counts_packed_latents: bool = False
    nemotron_h_on_trtllm: bool = False
    # EXAONE with windows has attention without being told, before an assertion asks for one of three
    exaone_has_defaults: bool = False
    # A stage whose layers all have states: DefaultPoolConfigurator of model_executor/pool_configurator.py
    sizes_stages_without_keys: bool = False
    # A stage of layers behind windows has the next one's first in its pool: pooled_layers of sizing.py here
    pools_next_layer: bool = True
    has_qwen3_vl_defaults: bool = False
    pages_qwen_hybrids: bool = False
    # Recurrent states: _handle_mamba_radix_cache, arg_groups/mamba_hook.py
    settles_state_cache: bool = False
    wants_states_to_keep: bool = False
    state_keepers: frozenset[str] = _FIRST_STATE_KEEPERS
    stateless_prefixes: frozenset[str] = frozenset({"KimiLinearForCausalLM", "BailingMoeV2_5ForCausalLM"})
    # ... how many: handle_max_mamba_cache, _calculate_mamba_ratio; MambaPool
    drafts_share_states: bool = False
    counts_padding_state: bool = False
    may_unlock_states: bool = False
    drafts_share_windows: bool = False
    prefill_states: PrefillStates = "kept"  # of drafted tokens, which a prefill role never verifies
    # Blocks of tokens: block_rules.py here
    blocks: BlockRules = BLOCKS_12
    # DeepSeek-V4's pools: compressed_rules.py here
    compressed_pools: CompressedRules = COMPRESSED_12
    # srt/models/kimi_linear.py: a stage loads its own layers; a delta layer's values are as wide as its keys
    kimi_linear_has_own_parts: bool = False
    # srt/models/qwen2_moe.py: each layer is told where its stage begins
    tells_layers_their_stage: bool = False
    # srt/models/longcat_flash.py: what it asks of rope_scaling, whatever rope_parameters are
    longcat_rope: Literal["its base", "nothing", "a factor"] = "its base"
    # srt/models/gemma4_causal.py: a stage has its own layers alone; experts by gelu on CUTLASS kernels, which
    # before were unquantized ones that ran by silu: srt/layers/quantization, moe_runner/flashinfer_cutlass.py
    gemma_4_has_stages: bool = False
    mistral_3_has_stages: bool = False  # srt/models/mistral.py
    knows_indexed_attention: bool = False  # of a layer's kind in srt/configs, and transformers'
    qwen4_has_stages: bool = False  # srt/models/qwen4_exp.py
    gelu_on_cutlass: Literal["none", "quantized", "all"] = "none"
    # per_layer_config of its file: srt/utils/hf_transformers/config.py
    reads_layers_apart: bool = False
    # srt/layers/attention/triton_backend.py: of most models with states, and some have no keys in it
    triton_asks_first_layer: bool = True
    # What gated deltas go with on sm100, and on sm120: layers/attention/attention_registry.py
    beside_deltas: tuple[tuple[str, ...], tuple[str, ...]] = (_BESIDE_DELTAS, _BESIDE_DELTAS)
    # srt/models/falcon_h1.py: ranks add up partial sums alone, and each once
    falcon_h1_adds_once: bool = False
    # srt/models/bailing_moe_v3.py: routers in the dtype that config.json names
    bailing_v3_routes_as_told: bool = False
    moves_trtllms_choices: bool = False  # of experts that EPLB lays elsewhere
    # srt/configs/model_config.py: heads as wide as the hidden size leaves, where a file does not say
    fills_in_head_dim: bool = False
    # srt/models/qwen3_next.py: enable_cuda_shared_expert_fusion
    fuses_gated_shared: bool = False
    glm_routers: Wide = "copied"
    joins_indexer: bool = False
    # Deterministic inference: _handle_deterministic_inference, arg_groups/attention_hook.py
    deterministic_backends: tuple[str, ...] = ("flashinfer", "fa3", "triton")
    deterministic_prefixes: tuple[str, ...] = ("fa3", "triton")
    absorbed_deterministic: tuple[str, ...] = ("fa3", "triton")
    absorbed_mla: frozenset[str] = _ABSORBED_MLA
    # Architectures whose models it has, and that its rules do not name yet
    without_rules: frozenset[str] = _WITHOUT_RULES | names.INKLING
    # Attention and its pages: _handle_attention_backend_compatibility, arg_groups/attention_hook.py
    moves_tiered_decode: bool = True
    # Rows of a decode server for requests that arrive follow from what was asked, and not from what may run
    tells_arriving: bool = False
    # A request's row has room for what drafts write in pages that are not full:
    # get_req_to_token_extra_context_len of mem_cache/common.py, then mem_cache/allocation_sizing.py
    pages_ahead: PagesAhead = "none"
    one_branch_drafts: tuple[str, ...] = ()
    tells_wide_keys: bool = False
    has_cutlass_mla: bool = True
    has_hpc_ops: bool = False
    more_trtllm_mla_kv: tuple[str, ...] = ("fp4_e2m1",)
    trtllm_mha_pages: tuple[int, ...] = (16, 32, 64)
    trtllm_mha_prefill_majors: tuple[int, ...] = (10,)
    drafts_ask_for_pages: bool = False
    fa4_pages_by_prefill: bool = True
    # The weights' own word on the KV cache: layers/quantization, mem_cache/kv_cache_dtype.py
    reads_kv_scheme_of: tuple[str, ...] = ("modelopt", "modelopt_fp8", "modelopt_fp4", "modelopt_mixed")
    reads_flat_kv_algorithm: bool = False
    # DeepGEMM's experts without an all-to-all: room for all rows in each of them, or for those that can come.
    # srt/layers/moe/moe_runner/deep_gemm.py
    deep_gemm_layout: ExpertLayout = "masked"
    # dispose_tensor of srt/utils/common.py does nothing where graphs of decodes are captured
    keeps_inputs_in_graphs: bool = False
    # A draft is loaded before the pool is sized, and gives its tables back behind it: init_model_worker in
    # managers/scheduler.py, alloc_memory_pool in speculative/eagle_worker_v2.py
    loads_drafts_before_pool: bool = False
    # ... is captured while it catches up by these, and by any where a worker is without overlap:
    # speculative/eagle_worker_v2.py, speculative/eagle_worker.py
    catches_up_in_graphs: tuple[str, ...] = ("triton", "trtllm_mla", "tokenspeed_mla")
    drafts_without_overlap: bool = True
    # ... with as many rows a request as it makes steps, and one more
    catches_up_by_steps: bool = True
    # ... and leaves its logits where its target's graphs do, where those are more, or as many, or of as many
    # words: model_executor/input_buffers.py, then graph_shared_output.py
    shares_logits: Literal["of more", "of as many", "by words"] = "of more"
    # ... and keeps what its layers make of the last row alone: layers/logits_processor.py
    keeps_last_caught_up: bool = False
    # Prefill graphs of a target that EAGLE drafts for: model_runner_components/cuda_graph_setup.py
    eagle_keeps_prefill_graphs: Literal["all", "in pieces", "not compiled"] = "all"
    # ... attends by these, too: speculative/draft_utils.py
    more_drafting_attention: tuple[str, ...] = ("tokenspeed_mla",)
    # Models of their own that draft must know as many words: speculative/standalone_worker_v2.py
    compares_words: bool = False
    # A draft's layers count where its path is known, or config.json tells them: spec_aux_hidden_state.py
    counts_told_drafts: bool = False
    # ... and beside layers that see a window only: HybridSWAPoolConfigurator of pool_configurator.py
    counts_drafts_beside_windows: bool = False
    # What the target's checkpoint says of its KV cache is written into the argument, which its draft reads:
    # configure_kv_cache_dtype of model_executor/model_runner.py
    drafts_keep_targets_scheme: bool = True
    # Of DFLASH's drafts, as they are: pool_configurator.py, speculative/dflash_utils.py
    sizes_block_drafts: bool = False
    # ... which keep matrices of keys and values a second time, turned: FusedKVMaterializeHelper
    turns_block_keys: bool = False
    # ... whose words are captured with them: speculative/dflash_worker_v2.py
    captures_block_words: Literal["never", "of one rank", "of all"] = "never"
    block_graphs_need: float = 0.0  # ... where so much is free, in GiB
    # ... of which a verify with samples is rehearsed before a server is ready: the same file
    rehearses_block_verifies: bool = False
    # ... see windows, as their config.json says: models/dflash.py
    block_drafts_see_windows: bool = False
    # ... attend by trtllm_mha where all layers see one, and else by another: arg_groups/speculative_hook.py
    block_drafts_on_trtllm: bool = False
    block_drafts_leave_trtllm_for: str = "flashinfer"  # on sm100
    # ... and without a number of their target's layers, name the last of them: models/dflash.py
    block_drafts_name_layers: bool = False
    # norm_before_fc of models/llama_eagle3.py
    norms_drafts_whole: bool = False
    # Each rank makes a part of what a draft with latents is given: models/kimi_k25_eagle3.py
    splits_latent_drafts: bool = False
    # For how many tokens inputs are held before any graph's: model_executor/runner/eager_runner.py
    eager_inputs: EagerInputs = "none"
    # Decode graphs keep what a pass back would ask: init_all_cuda_graphs of managers/scheduler.py
    captures_for_backward: bool = True
    # Triton's decode graphs have a mask of the context without drafts, too: attention/triton_backend.py
    masks_decodes: bool = True
    # ... and those that a draft catches up with one, though it verifies nothing
    masks_drafts: bool = True
    masked_verifies: tuple[str, ...] = ()  # by which backends all that drafts bring is masked
    masks_trees: bool = False  # ... by FlashAttention's where it branches
    counting_attention: tuple[str, ...] = ()  # whose kernels have counters that a backend holds
    strided_attention: tuple[str, ...] = (*FLASH_ATTENTION, "trtllm_mha")  # graphs' strides of pages
    reads_pages: bool = False  # sparse attention's plain decodes
    keeps_semaphores: bool = False  # beside the workspace of trtllm_mha, of kernels before sm100
    has_lean_decodes: bool = False  # Triton's, with partial results of each multiprocessor
    # Prefill graphs of a stage are given up for layers that other stages have: cuda_graph_setup.py
    captures_stages_prefills: bool = False
    # ... and for layers of NemotronH that have no attention: compute_attention_and_moe_layers there
    captures_mixers: CapturedMixers = "all"
    # Prefill graphs that nobody asked for need this much free, in GiB: the same file
    prefill_graphs_need: float = 0.0
    # FlashInfer's all-reduce fused with a norm, where no flag says no: arg_groups/overrides.py
    fused_all_reduce: frozenset[str] = names.FUSED_ALL_REDUCE
    fuses_all_reduce_on_h20: bool = False
    fuses_all_reduce_over_nodes: bool = False
    # A Gemma 3 that sees both ways embeds, and on some backends keeps nothing: arg_groups/model_hook.py
    embedding_gemma: EmbeddingGemma = "unknown"
    # Requests of a rank: resolve_max_num_reqs in mem_cache/kv_cache_configurator.py
    context_caps_requests: bool = True
    serves_one_request: bool = False
    # An encoder elsewhere: _handle_encoder_disaggregation
    encoders_register: bool = False
    # Some models' inputs are prefilled whole: arg_groups/model_hook.py
    knows_unchunked: bool = False
    # Of FlashInfer's attention, layers/attention/flashinfer_backend.py: paged prefills are planned with their
    # window, and on Blackwell CUTLASS has the ragged ones of heads that it knows alone
    plans_windows: bool = False
    cutlass_prefills_by_heads: bool = False
    # What a start compiles and keeps. Libraries' variables that it sets, and folders below $SGLANG_CACHE_DIR:
    # third_party_cache_defaults of srt/environ.py
    gathered_caches: tuple[tuple[str, str], ...] = ()
    # SGLANG_DG_CACHE_DIR unset is below $SGLANG_CACHE_DIR, no longer ~/.cache/deep_gemm: the same file
    gathers_deep_gemm: bool = False
    # SGLANG_JIT_CACHE_DIR holds its own kernels: kernels/jit/utils/compile/cache.py. Before: tvm-ffi's folder
    keys_kernels_by_content: bool = False
    # A lock file a group of DeepGEMM's kernels, below its folder: layers/deep_gemm_wrapper/compile_utils.py
    locks_deep_gemm: bool = False
    # CuTe DSL's: ops/attention/flash_attn/cute/cache_utils.py, then kernels/jit/cute_aot_cache.py
    cute_objects: CuteObjects = "not kept"

    @property
    def number(self) -> tuple[int, ...]:
        return number(self.version)


_12 = Release("0.5.12", flashinfer="0.6.11.post1", transformers="5.6.0", mxfp4_by_cutlass=(9,))
_13 = _12._replace(
    version="0.5.13",
    catches_up_in_graphs=(*_12.catches_up_in_graphs, "trtllm_mha", "cutedsl_mla"),
    drafts_without_overlap=False,
    catches_up_by_steps=False,
    more_drafting_attention=("tokenspeed_mla", "cutedsl_mla"),
    compressed_pools=COMPRESSED_13,
    fuses_all_reduce_on_h20=True,
    fused_all_reduce=_13_FUSED,
    adaptive_steps=(1, 3, 7),
    flashinfer="0.6.12",
    transformers="5.8.1",
    fp4_gemm_gates=True,
    fp4_gemm_before_blackwell="marlin",
    fp4_gemm_on_sm120="flashinfer_cutlass",
    fuses_nvfp4_swiglu=True,
    nvfp4_runs_cutlass_on=(12,),
    flashinfer_a2a_needs_dp=True,
    dispatch_tokens_by_ranks=False,
    pages_with_topk=("flashinfer", "fa3", "triton"),
    pd_graphs="none in prefill",
    eager_prefill_architectures=_EAGER,
    uncompiled_experts=(),
    context_caps_prefill_graphs=True,
    sparse_backend="dsa",
    gemma_4_on_trtllm=True,
    gemma_4_has_stages=True,
    tells_layers_their_stage=True,
    gelu_on_cutlass="quantized",
    encoders_register=True,
    step_3p5_has_defaults=True,
    state_keepers=_FIRST_STATE_KEEPERS | {"BailingMoeV2_5ForCausalLM"},
    stateless_prefixes=frozenset({"KimiLinearForCausalLM"}),
    deterministic_backends=("flashinfer", "fa3", "triton", "ascend"),
    deterministic_prefixes=("fa3", "triton", "ascend"),
    drafts_share_states=True,
    pages_ahead="of any tree",
    host_cache_has_windows=True,
    masked_verifies=("trtllm_mla", "cutedsl_mla", "tokenspeed_mla"),
)
_14 = _13._replace(
    version="0.5.14",
    shares_logits="of as many",
    block_graphs_need=1.0,
    block_drafts_see_windows=True,
    turns_block_keys=True,
    host_cache_layout="page_first",
    stages_write_backs=True,
    catches_up_in_graphs=(*_13.catches_up_in_graphs, "flashinfer"),
    eagle_keeps_prefill_graphs="in pieces",
    pages_ahead="of a draft's tree",
    laid_out=LAID_OUT_14,
    eager_inputs="a chunk",
    fills_in_head_dim=True,
    reads_nvfp4_beside_fp8=True,
    fused_all_reduce=_14_FUSED,
    fuses_all_reduce_over_nodes=True,
    loads_drafts_before_pool=True,
    adaptive_steps=(0, 1, 3, 7),
    adaptive_sizes=True,
    fp8_gemm_gates=True,
    fp8_gemm_layers=_BLACKWELL_MAJORS,
    chosen_fp8_gemm_tunes=True,
    goes_with=(*_GOES_WITH, ("nvfp4_online", "fp8")),
    mxfp4_on_sm120="marlin",
    ngram_counts_steps=True,
    one_switch_for_graphs=True,
    moves_tiered_decode=False,
    tells_arriving=True,
    compiled_architectures=names.COHERE_VISION,
    reserves_for_drafts=False,
    pages_qwen_hybrids=True,
    settles_state_cache=True,
    state_keepers=names.KEEPS_STATES,
    drafts_share_windows=True,
    fuses_gated_shared=True,
    context_caps_requests=False,
    bounds_windows_by_requests=True,
    strided_attention=FLASH_ATTENTION,
)
_15 = _14._replace(
    version="0.5.15",
    shares_logits="by words",
    captures_block_words="of one rank",
    host_cache_is_larger=False,
    catches_up_in_graphs=(*_14.catches_up_in_graphs, "dsa", "nsa"),
    compares_words=True,
    laid_out=LAID_OUT_15,
    joins_indexer=True,
    blocks=BLOCKS_15,
    eager_inputs="the pool",
    compressed_pools=COMPRESSED_15,
    gelu_on_cutlass="all",
    weighted_rows="refused",
    keeps_inputs_in_graphs=True,
    transformers="5.12.1",
    key_has_draft_quantization=True,
    counts_drafts_beside_windows=True,
    splits_latent_drafts=True,
    never_by_chosen_fp8_gemm=("mxfp8",),
    mxfp8_runs_cutlass_gemm=True,
    tunes_drafts=True,
    mixed_by_layers=True,
    goes_with=(
        *_14.goes_with,
        ("auto-round-int8", "compressed-tensors"),
        ("auto-round-int8", "compressed_tensors"),
    ),
    prefill_graph_backend="breakable",
    prefill_graph_backends=("full", "breakable", "tc_piecewise", "disabled"),
    breakable_off_with=(*_BREAKABLE_OFF_WITH, "MLA", "LoRA", "an all-to-all", "DP attention"),
    compiled_architectures=frozenset(),
    trtllm_mla_has_prefill_graphs=False,
    reserves_by_role=True,
    mimo_v2_on_fa4=True,
    fa4_pages_by_prefill=False,
    reads_flat_kv_algorithm=True,
    reads_pages=True,
)
_16 = _15._replace(
    beside_deltas=(_BESIDE_DELTAS[:3], ("triton", "trtllm_mha", "flashinfer")),
    records_by_any_a2a=False,
    version="0.5.16",
    captures_block_words="of all",
    masks_drafts=False,
    catches_up_in_graphs=(*_15.catches_up_in_graphs, "dsv4", "flashmla"),
    pages_ahead="all",
    laid_out=LAID_OUT_16,
    asks_windows_for_a_request=True,
    without_rules=_WITHOUT_RULES,
    has_minimax_m3=True,
    longcat_rope="nothing",
    narrow_fp4_scales=True,
    plans_windows=True,
    fp4_beside_fp8_by_cutlass=(9, 12),
    prefill_graphs_need=4.0,
    cute_objects="on demand",
    waterfills_over=("deepep", "megamoe"),
    checks_a2a_as_asked=True,
    flashinfer="0.6.14",
    never_by_chosen_fp8_gemm=(),
    always_skipped_ops=("mxfp8_gemm",),
    dropped_methods=("qoq", "fbgemm_fp8"),
    algorithms=(*_ALGORITHMS, "DSPARK"),
    pd_graphs="by role",
    compiled_off_with=(*_COMPILED_OFF_WITH, "decode context parallelism"),
    breakable_off_with=(*_15.breakable_off_with, "decode context parallelism"),
    compiled_architectures=names.COHERE_VISION | names.MINIMAX_M3 | names.KIMI_K25,
    breakable_multimodal=names.QWEN3_5,
    fits_prefill_graphs=True,
    deepseek_family=names.DEEPSEEK_FAMILY | names.LONGCAT,
    sparse_architectures=names.SPARSE | names.LONGCAT,
    state_keepers=names.KEEPS_STATES | {"KimiLinearForCausalLM"},
    deterministic_backends=("flashinfer", "fa3", "triton", "ascend", "fa4"),
    deterministic_prefixes=("fa3", "triton", "ascend", "fa4"),
    knows_unchunked=True,
    masked_verifies=(*_15.masked_verifies, "flashmla", *FLASH_ATTENTION),
    spares_tree_places=True,
)
_BREAKABLE_17 = (
    *(*_BREAKABLE_OFF_WITH, "decode context parallelism", "two-batch overlap"),
    "an all-to-all of no proof",
)
_17 = _16._replace(
    copies_agree=True,
    version="0.5.17",
    block_drafts_on_trtllm=True,
    counts_packed_latents=True,
    sizes_stages_without_keys=True,
    embedding_gemma="by flags",
    masks_decodes=False,
    longcat_rope="a factor",
    without_rules=frozenset({"KimiK3LinearForCausalLM"}),
    absorbs_by_flashinfer=True,
    mxfp4_trtllm_rows=128,
    deep_gemm_layout="by experts",
    flashinfer="0.6.15.post1",
    key_has_skipped_ops=True,
    drafts_keep_targets_scheme=False,
    norms_drafts_whole=True,
    drafts_gate_by_their_backend=True,
    mxfp4_on_sm120="flashinfer_mxfp4",
    mxfp4_by_cutlass=(9, 12),
    deepep_cutedsl_is_low_latency=True,
    breakable_off_with=(*_BREAKABLE_17, "MLA that is not sparse", "NemotronH"),
    aligns_deepep_graphs=True,
    context_caps_prefill_graphs=False,
    pd_decode_has_encoder=False,
    minimax_m3_attends_in_fp8=True,
    fp8_block_keys_on=(10,),
    absorbed_deterministic=_16.deterministic_prefixes,
    tells_wide_keys=True,
    has_hpc_ops=True,
    trtllm_mha_pages=(16, 32, 64, 128),
    drafts_ask_for_pages=True,
    counts_padding_state=True,
    may_unlock_states=True,
    kimi_linear_has_own_parts=True,
    masked_verifies=(),
    masks_trees=True,
    counting_attention=("trtllm_mla", "cutedsl_mla", "tokenspeed_mla", "dsa"),
    sparse=SPARSE_17,
)
_MULTIMODAL_18 = names.KIMI_K25 | {
    "InternS2MobiusForConditionalGeneration",
    "KimiK3ForConditionalGeneration",
    "MuseGlimmerForConditionalGeneration",
}
_GATHERED_18 = (
    *(("TRITON_CACHE_DIR", "triton"), ("TORCHINDUCTOR_CACHE_DIR", "inductor"), ("CUDA_CACHE_PATH", "nv")),
    ("FLASHINFER_WORKSPACE_BASE", ""),
)
_18 = _17._replace(
    version="0.5.18",
    sizes_block_drafts=True,
    block_drafts_name_layers=True,
    prefill_states="counted",
    laid_out=LAID_OUT_18,
    quantizes_modelopt_fp4=True,
    exchanges_logits=True,
    reserves_for_images=True,
    triton_asks_first_layer=False,
    compressed_pools=COMPRESSED_18,
    fused_all_reduce=_18_FUSED,
    prefill_graphs_need=0.0,
    gathered_caches=_GATHERED_18,
    gathers_deep_gemm=True,
    keys_kernels_by_content=True,
    deep_gemm_layout="by memory",
    flashinfer="0.6.17",
    always_skipped_ops=(),
    without_rules=frozenset(),
    fused_finalize_by_environment=True,
    has_extend_pass=True,
    tunes_fp8_gemm=True,
    fp8_gemm_majors=(9, *_BLACKWELL_MAJORS),
    fp8_gemm_layers=(9, *_BLACKWELL_MAJORS),
    chosen_fp8_gemm_tunes=False,
    mxfp8_runs_cutlass_gemm=False,
    mxfp8_gemm_methods=("mxfp8",),
    deterministic_never_tunes=True,
    fp8_algorithms_apart=True,
    goes_with=(*_15.goes_with, ("nvfp4_online", "modelopt_fp8"), ("modelopt_fp4", "fp8")),
    routes_fp8_under_ep=True,
    defers_finalising=True,
    breakable_off_with=_BREAKABLE_17,
    compiled_architectures=names.COHERE_VISION | names.MINIMAX_M3,
    breakable_multimodal=_16.breakable_multimodal | _MULTIMODAL_18,
    absorbed_mla=_ABSORBED_MLA | {"Glm4MoeLiteForCausalLM"},
    reads_kv_scheme_of=(*_17.reads_kv_scheme_of, "fp8", "mxfp8"),
    counting_attention=(*_17.counting_attention, "trtllm_mha"),
)
_19 = _18._replace(
    version="0.5.19",
    ranks_share_host=True,
    embedding_gemma="by backends",
    glm_routers="stored",
    captures_mixers="none",
    checks_a2a_as_asked=False,
    locks_deep_gemm=True,
    unified_memory_has_prefill_graphs=False,
    flashinfer="0.6.18",
    deletes_unequal_ranks=True,
    breakable_off_with=(*_BREAKABLE_17, "pipeline parallelism"),
    compiled_architectures=names.MINIMAX_M3,
    breakable_multimodal=_18.breakable_multimodal
    | names.COHERE_VISION
    | {"PaddleOCRVLForConditionalGeneration"},
    caps_pipelined_prefill_graphs=True,
    nemotron_h_on_trtllm=True,
    deterministic_backends=(*_18.deterministic_backends, "intel_xpu"),
    trtllm_mha_prefill_majors=(9, 10, 12),
    reads_kv_scheme_of=(*_18.reads_kv_scheme_of, "compressed-tensors"),
    has_lean_decodes=True,
)
_20 = _19._replace(
    version="0.5.20",
    rehearses_block_verifies=True,
    keeps_last_caught_up=True,
    compressed_pools=COMPRESSED_20,
    fused_all_reduce=_20_FUSED,
    counts_told_drafts=True,
    captures_stages_prefills=True,
    cute_objects="kept",
    unified_memory_has_prefill_graphs=True,
    unified_memory_checks_whole_prefills=True,
    adaptive_steps=(0, 1, 3, 5, 7),
    dropped_methods=(*_16.dropped_methods, "gptq"),
    runs_fp8_experts_elsewhere=True,
    dispatch_type_routes=True,
    routes_apart=True,
    breakable_off_with=(*_19.breakable_off_with, "delta attention"),
    breakable_multimodal=_19.breakable_multimodal | names.GLM_5_NEXT,
    small_gpu_chunk=4096,
    small_gpu_graphs=(48, 160),
    fraction_without_gpu=0.95,
    keeps_sink_kv_wide=True,
    sparse=SPARSE_20,
    has_qwen3_vl_defaults=True,
    glm_5_next_prefill_graph_top=4096,
    absorbed_mla=_19.absorbed_mla | names.GLM_5_NEXT,
    has_cutlass_mla=False,
)
_21 = _20._replace(
    beside_deltas=(_BESIDE_DELTAS, ("triton", "trtllm_mha", "flashinfer")),
    version="0.5.21",
    fits_host_cache=True,
    pools_next_layer=False,
    blocks=BLOCKS_21,
    compressed_pools=COMPRESSED_21,
    counts_fp8_block_keys=True,
    falcon_h1_adds_once=True,
    block_fp8_runs_as_mxfp8=True,
    cutlass_prefills_by_heads=True,
    pads_fp4_beside_fp8=True,
    gathered_caches=(*_GATHERED_18, ("TILELANG_CACHE_DIR", "tilelang")),
    weighted_rows="of one expert",
    fused_finalize_unset=False,
    always_saves=True,
    wants_states_to_keep=True,
    state_keepers=_20.state_keepers | names.INKLING,
    more_trtllm_mla_kv=(),
    qwen4_has_stages=True,
)
_22 = _21._replace(
    version="0.5.22",
    eagle_keeps_prefill_graphs="not compiled",
    exaone_has_defaults=True,
    blocks=BLOCKS_22,
    compressed_pools=COMPRESSED_22,
    captures_for_backward=False,
    reads_layers_apart=True,
    flashinfer="0.7.1",
    transformers="5.19.0",
    megamoe_files_by_gpu=True,
    flashinfer_a2a_needs_chunks=True,
    nvfp4_runs_cutlass_on=(11, 12),
    dp_attention_of_one=False,
    decode_graph_backends=("full", "breakable", "disabled"),
    prefill_graph_backends=("full", "breakable", "disabled"),
    inkling_on_fa4=(9, 10),
    breakable_off_with=(*_19.breakable_off_with, "delta attention but GLM's"),
    compiled_architectures=frozenset(),
    breakable_multimodal=_21.breakable_multimodal | names.MINIMAX_M3 | {"Qwen4ExpForConditionalGeneration"},
    requests_cap_decode_graphs=True,
    glm_5_next_prefill_graph_top=None,
    keeps_context_width=True,
    pools_sparse_pages=True,
    sparse=SPARSE_22,
    prefill_states="none",
    knows_indexed_attention=True,
    gemma_4_on_fa4=True,
)
_23 = _22._replace(
    version="0.5.23",
    block_drafts_leave_trtllm_for="fa4",
    finds_layers_in_pages=True,
    catches_up_in_graphs=(*_22.catches_up_in_graphs, *FLASH_ATTENTION),
    more_drafting_attention=("cutedsl_mla",),
    captures_mixers="of experts on sm120",
    fp8_block_keys_on=(9, 10),
    serves_nvfp4_minimax=True,
    reads_kv_scheme_of=(*_22.reads_kv_scheme_of, "minimax_m3_nvfp4"),
    pins_paged_blocks_on=(9,),
    tokenspeed_is_cutedsl=True,
    flashinfer="0.7.2",
    candidate_selection="v2_default",
    mxfp8_gemm_methods=("mxfp8", "minimax_m3_nvfp4"),
    block_fp8_as_mxfp8_gates=True,
    nvfp4_trtllm_rows=64,
    goes_with=(*_18.goes_with, ("minimax_m3_nvfp4", "mxfp8")),
    algorithms=(*_16.algorithms, "UNO"),
    dflash_shares_heads=True,
    ranges_by_chunk=True,
    routes_by_named_method=True,
    bailing_v3_routes_as_told=True,
    moves_trtllms_choices=True,
    mistral_3_has_stages=True,
    breakable_multimodal=_22.breakable_multimodal | {"MuseSparkForConditionalGeneration"},
    mla_prefill_graph_top=8192,
    mla_prefill_graphs_fit_chunk=True,
    one_branch_drafts=("DFLASH",),
    serves_one_request=True,
    keeps_semaphores=True,
)

RELEASES = (_12, _13, _14, _15, _16, _17, _18, _19, _20, _21, _22, _23)
NEWEST = RELEASES[-1]


class Named(NamedTuple):
    """A release under the very name it was asked by, and what is doubtful about that."""

    release: Release
    note: str | None = None
    warning: str | None = None


@lru_cache(64)  # each layer of a model asks
def release_named(version: str | None) -> Named:
    """None is the newest known; what is newer than that is taken to be like it."""
    if version is None:
        return Named(NEWEST, note=f"SGLang {NEWEST.version}: the newest known; none is installed here")
    wanted = number(version)
    if len(wanted) < 2:
        raise ConfigError(f"--sglang-version {version!r} is not a version", f"write it as {NEWEST.version}")
    if wanted < RELEASES[0].number:
        raise ConfigError(
            f"SGLang {version} keeps its autotune results in memory only: it has no cache file",
            f"{RELEASES[0].version} is the first version with a cache file",
        )
    known = next((row for row in RELEASES if row.number == wanted), None)
    if known is not None:
        return Named(known._replace(version=version))
    if wanted < NEWEST.number:
        raise ConfigError(
            f"SGLang {version} is not among the releases whose rules are known",
            f"one of {', '.join(row.version for row in RELEASES)}",
        )
    doubt = f"SGLang {version} is newer than {NEWEST.version}, the newest known: the same rules are assumed"
    return Named(NEWEST._replace(version=version), warning=doubt)
