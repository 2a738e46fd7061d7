"""What a server argument that no rule reads does to memory and caches: nothing, or something not modelled.

Fields by SGLang's names, under the reason that is told. A field of any release stands in one place alone:
in a table here, or among those that rules read (runtime/server/asked.py).
"""

from __future__ import annotations

from functools import cache

# These change memory, the key or what is tuned, and no rule follows how.
NOT_MODELLED: dict[str, str] = {
    "adapters": """
        enable_lora lora_paths enable_lora_overlap_loading max_lora_rank lora_target_modules
        max_loras_per_batch lora_backend max_lora_chunk_size experts_shared_outer_loras
        lora_use_virtual_experts record_nolora_graph uno_lora_path""",
    "a cache of several tiers": """
        enable_hierarchical_cache enable_hisparse hisparse_config enable_lmcache lmcache_config_file
        enable_flexkv flexkv_config_file enable_unified_memory enable_unified_cache_external_linker
        unified_cache_external_linker_backend unified_cache_external_linker_config enable_linker_mla_dedup
        radix_cache_backend disaggregation_decode_enable_offload_kvcache hicache_io_backend
        hicache_mem_layout hicache_ratio hicache_size hicache_storage_backend hicache_host_memory_mode
        hicache_host_memory_fraction""",
    "weights away from the GPU": """
        cpu_offload_gb offload_group_size offload_num_in_group offload_prefetch_step offload_mode
        kt_weight_path kt_method kt_cpuinfer kt_threadpool_count kt_num_gpu_experts
        kt_max_deferred_experts_per_token ple_offload_embedding ple_offload_backend ple_offload_dir
        enable_paged_experts paged_experts_num_resident enable_memory_saver enable_weights_cpu_backup
        enable_draft_weights_cpu_backup weight_cache_mode weight_cache_socket weight_cache_timeout""",
    "where experts are": """
        enable_eplb ep_num_redundant_experts init_expert_location ep_dispatch_algorithm eplb_algorithm
        eplb_rebalance_num_iterations eplb_rebalance_layers_per_chunk
        eplb_min_rebalancing_utilization_threshold expert_distribution_recorder_mode
        expert_distribution_recorder_buffer_size enable_expert_distribution_metrics
        expert_balancedness_report_mode elastic_ep_backend enable_elastic_expert_backup
        elastic_ep_rejoin elastic_ep_initial_size elastic_ep_scale_timeout ep_join_mode
        ep_join_rank_offset max_ep_size""",
    "context parallelism": """
        attn_cp_size dcp_size dcp_comm_backend dcp_replicate_q_proj enable_prefill_cp cp_strategy
        enable_prefill_context_parallel prefill_cp_mode enable_nsa_prefill_context_parallel
        nsa_prefill_cp_mode enable_dsa_prefill_context_parallel dsa_prefill_cp_mode
        enable_cp_decode_attn_tp enable_dsa_cache_layer_split enable_kv_cache_sharding""",
    "another split of layers": """
        moe_dp_size dwdp_size enable_attn_tp_input_scattered disable_attn_tp_gather
        enable_shared_experts_attn_tp enable_dense_mlp_attn_tp
        enable_layernorm_sp enable_megamoe_for_layernorm_sp shared_experts_tp_size
        enforce_shared_experts_fusion fuseep_mode""",
    "another model than its config says": """
        json_model_override_args model_impl model_config_parser model_loader_extra_config
        encoder_only speculative_draft_model_revision decrypted_config_file
        decrypted_draft_config_file forward_hooks enable_fp32_lm_head speculative_token_map""",
    "weights quantized on the way": """
        load_format modelopt_quant quantize_and_serve rl_quant_profile torchao_config
        quantization_param_path""",
    "other kernels and their buffers": """
        deepep_config deepep_dispatcher_output_dtype deepep_v2_mode
        enable_w4a4_mxfp4_megamoe speculative_enable_w4a4_mxfp4_megamoe
        bf16_gemm_backend enable_nvidia_megakernel
        mm_attention_backend nsa_prefill_backend nsa_decode_backend dsa_prefill_backend dsa_decode_backend
        dsa_topk_backend speculative_dsa_topk_backend dsa_paged_mqa_logits_backend dsa_triton_union
        enable_dsa_fused_indexer dsv4_prefill_backend dsv4_attn_backend enable_lean_attention mamba_backend
        linear_attn_prefill_backend linear_attn_verify_backend triton_attention_reduce_in_fp32
        triton_attention_num_kv_splits triton_attention_split_tile_size flashinfer_mla_disable_ragged
        disable_chunked_prefix_cache boundary_reduction enable_scattered_sconv device enable_tf32_matmul
        enable_fused_moe_sum_all_reduce""",
    "other communication and its buffers": """
        enable_mscclpp enable_torch_symm_mem enable_nccl_nvls pre_warm_nccl
        enable_flashinfer_allreduce_fusion enable_quant_communications""",
    "another KV cache": """
        disable_hybrid_swa_memory hybrid_kvcache_ratio prefill_only_disable_kv_cache
        enable_page_major_kv_layout c128_page_size enable_deepseek_v4_fp4_indexer qsa_indexer_dtype
        speculative_draft_window_size speculative_draft_sink_size
        prefill_kv_cache_dequant_dtype num_reserved_decode_tokens
        swa_prefix_tails enable_encoder_swa_bounded_replay enable_decoder_swa_bounded_replay
        enable_pd_role_switch kv_canary kv_canary_real_data""",
    "another state cache": """
        mamba_max_states_per_path enable_int8_mamba_checkpoint
        int8_mamba_ckpt_size enable_linear_replayssm linear_replayssm_cache_len enable_linear_replayssm_spec
        enable_gdn_replayssm_spec""",
    "other batches or graphs": """
        enable_dynamic_chunking pp_max_micro_batch_size pp_async_batch_depth enable_pdmux pdmux_config_path
        sm_group_num tbo_token_distribution_threshold enable_breakable_cuda_graph
        enable_piecewise_cuda_graph piecewise_cuda_graph_compiler cuda_graph_tc_compiler
        cuda_graph_prefill_max_context cuda_graph_max_seq_len_prefill torch_compile_max_bs
        enable_return_hidden_states return_hidden_states_mode enable_return_routed_experts
        enable_return_indexer_topk enable_return_aux_hidden_states return_aux_hidden_state_layer_ids
        enable_watermark dllm_algorithm dllm_algorithm_config dllm_fdfo""",
    "other drafts": """
        speculative_adaptive speculative_adaptive_config enable_multi_layer_eagle
        speculative_use_rejection_sampling speculative_use_block_verification
        decoupled_spec_bind_endpoint decoupled_spec_connect_endpoints decoupled_spec_rank
        decoupled_spec_role speculative_dspark_sps_table_path speculative_dspark_confidence_sts_path
        speculative_dspark_align_verify_tokens_to_graph_tier speculative_domino_candidate_pool_size""",
}

WITHOUT_EFFECT: dict[str, str] = {
    "the tokenizer": """
        tokenizer_path tokenizer_mode tokenizer_backend tokenizer_worker_num detokenizer_worker_num
        skip_tokenizer_init enable_tokenizer_batch_encode disable_tokenizer_batch_decode
        enable_dynamic_batch_tokenizer dynamic_batch_tokenizer_batch_size
        dynamic_batch_tokenizer_batch_timeout""",
    "the network": """
        host port fastapi_root_path grpc_mode smg_grpc_mode grpc_port grpc_http_sidecar_port
        smg_http_sidecar_port grpc_response_timeout_secs enable_http2 http2_max_concurrent_streams
        http2_initial_connection_window_size enable_http_worker_reuseport sidecar sidecar_args nccl_port
        dist_timeout gated_launch_port load_publish_endpoint load_balance_method
        prefill_round_robin_balance enable_dp_attention_local_control_broadcast tool_server""",
    "security": """
        api_key admin_api_key ssl_keyfile ssl_certfile ssl_ca_certs ssl_keyfile_password enable_ssl_refresh
        trust_remote_code allowed_media_domains media_url_max_file_size_mb trust_mm_content_hashes
        trust_request_chat_template""",
    "the interface": """
        served_model_name weight_version chat_template hf_chat_template_name completion_template
        default_chat_template_kwargs file_storage_path enable_cache_report reasoning_parser
        strip_thinking_cache enable_strict_thinking tool_call_parser sampling_defaults
        preferred_sampling_params stream_interval batch_notify_size incremental_streaming_output
        stream_response_default_include_usage enable_streaming_session enable_response_store
        return_input_ids return_output_ids allow_auto_truncate enable_custom_logit_processor
        enable_precise_embedding_interpolation asr_max_buffer_seconds asr_max_concurrent_sessions
        grammar_backend constrained_json_whitespace_pattern constrained_json_disable_any_whitespace
        constrained_json_max_whitespace_cnt disable_outlines_disk_cache random_seed sampling_mask_max_tokens
        watermark_config mlx_enable_sampling""",
    "logs and metrics": """
        log_level log_level_http log_requests log_requests_level log_requests_format log_requests_target
        uvicorn_access_log_exclude_prefixes crash_dump_folder show_time_cost enable_metrics
        enable_mfu_metrics enable_metrics_for_all_schedulers tokenizer_metrics_custom_labels_header
        tokenizer_metrics_allowed_custom_labels extra_metric_labels bucket_time_to_first_token
        bucket_inter_token_latency bucket_e2e_request_latency collect_tokens_histogram prompt_tokens_buckets
        generation_tokens_buckets gc_warning_threshold_secs decode_log_interval
        enable_request_time_stats_logging kv_events_config enable_forward_pass_metrics
        forward_pass_metrics_worker_id forward_pass_metrics_ipc_name enable_trace otlp_traces_endpoint
        otlp_service_name trace_modules export_metrics_to_file export_metrics_to_file_dir
        load_snapshot_publish_interval spec_trace_dir enable_layerwise_nvtx_marker enable_profile_cuda_graph
        enable_torch_compile_debug_mode enable_nan_detection kv_canary_sweep_interval""",
    "debugging": """
        debug_tensor_dump_layers debug_tensor_dump_input_file debug_tensor_dump_inject
        custom_sigquit_handler watchdog_timeout soft_watchdog_timeout""",
    "the order of requests": """
        max_queued_requests prefill_max_requests schedule_policy enable_priority_scheduling
        disable_priority_preemption default_priority_value abort_on_priority_when_disabled
        schedule_low_priority_values_first priority_scheduling_preemption_threshold retraction_policy
        schedule_conservativeness radix_eviction_policy radix_eviction_policy_config
        enable_session_radix_cache enable_prefill_delayer prefill_delayer_max_delay_passes
        prefill_delayer_token_usage_low_watermark prefill_delayer_forward_passes_buckets
        prefill_delayer_wait_seconds_buckets prefill_delayer_queue_min_ratio prefill_delayer_max_delay_ms
        prefill_decode_interval prefill_decode_interval_min_bs num_continuous_decode_steps
        scheduler_recv_interval min_free_slots_delay""",
    "the host's processes": """
        base_gpu_id gpu_id_step sleep_on_idle use_ray numa_node gc_threshold enable_cudagraph_gc
        enable_p2p_check skip_server_warmup warmups""",
    "where weights come from": """
        download_dir model_checksum checkpoint_engine_wait_weights_before_ready
        modelopt_checkpoint_restore_path modelopt_checkpoint_save_path modelopt_export_path
        custom_weight_loader weight_loader_disable_mmap weight_loader_prefetch_checkpoints
        weight_loader_prefetch_num_threads weight_loader_drop_cache_after_load
        remote_instance_weight_loader_seed_instance_ip
        remote_instance_weight_loader_seed_instance_service_port
        remote_instance_weight_loader_send_weights_group_ports remote_instance_weight_loader_backend
        remote_instance_weight_loader_start_seed_via_transfer_engine engine_info_bootstrap_port
        modelexpress_config delete_ckpt_after_loading startup_weight_load_mode
        speculative_draft_load_format""",
    "the host's memory": """
        hicache_write_policy hicache_storage_prefetch_policy hicache_storage_backend_extra_config
        hicache_storage_prefetch_retry_poll_interval hicache_storage_prefetch_retry_max_attempts
        max_loaded_loras lora_eviction_policy lora_strict_loading lora_drain_wait_threshold""",
    "images, video and sound while serving": """
        disable_fast_image_processor image_processor_backend enable_broadcast_mm_inputs_process
        mm_process_config limit_mm_data_per_request enable_prefix_mm_cache enable_mm_global_cache
        mm_global_cache_backend mm_processor_worker_num mm_io_worker_num
        enable_adaptive_dispatch_to_encoder encoder_transfer_backend encoder_bootstrap_port
        encoder_register_urls""",
    "the way from prefill to decode": """
        disaggregation_transfer_backend disaggregation_bootstrap_port disaggregation_ib_device
        disaggregation_decode_polling_interval disaggregation_decode_retraction_backup
        disaggregation_enable_kv_checksum disaggregation_decode_host_receive_threshold
        disaggregation_decode_allocation_policy optimistic_prefill_retries
        optimistic_prefill_attempts mooncake_ib_device""",
    "which drafts are taken": """
        speculative_accept_threshold_single speculative_accept_threshold_acc
        speculative_ngram_min_bfs_breadth speculative_ngram_match_type speculative_ngram_max_trie_depth
        speculative_ngram_capacity speculative_ngram_external_corpus_path
        speculative_ngram_external_sam_budget speculative_ngram_external_corpus_max_tokens
        speculative_skip_dp_mlp_sync""",
    "arithmetic within a kernel": """
        enable_fused_qk_norm_rope enable_mamba_cache_stochastic_rounding mamba_cache_philox_rounds""",
    "other hardware": """
        enable_aiter_allreduce_fusion disable_aiter_allreduce_fusion_in_prefill
        disable_aiter_allreduce_fusion_in_decode enable_amd_monokernel""",
}
# Read for where to meet, to look and what else to read; no rule sees them.
READ_ELSEWHERE = "dist_init_addr config revision"
# Rules read these, and not all that follows from them.
READ_IN_PART = """
    enable_lora lora_paths enable_hierarchical_cache disaggregation_decode_enable_offload_kvcache
    hicache_io_backend hicache_mem_layout cpu_offload_gb enable_eplb ep_num_redundant_experts
    expert_distribution_recorder_mode attn_cp_size dcp_size moe_dp_size dwdp_size
    json_model_override_args dllm_algorithm load_format"""


@cache
def not_modelled() -> dict[str, str]:
    """Field -> what it changes."""
    return {name: reason for reason, names in NOT_MODELLED.items() for name in names.split()}


@cache
def without_effect() -> dict[str, str]:
    """Field -> what it is about instead."""
    return {name: reason for reason, names in WITHOUT_EFFECT.items() for name in names.split()}
