"""The class of each model_type's config, and since which release it is known.

A name alone is spelled as usual: `gpt_oss` is GptOssConfig. Read by each release's own get_config
(srt/utils/hf_transformers/config.py) over transformers' and SGLang's registries.
"""

from __future__ import annotations

KNOWN_SINCE = {
    (0, 5, 12): """
        afmoe aimv2 aimv2_text_model=Aimv2TextConfig aimv2_vision_model=Aimv2VisionConfig albert align
        align_text_model=AlignTextConfig align_vision_model=AlignVisionConfig altclip=AltCLIPConfig
        altclip_text_model=AltCLIPTextConfig altclip_vision_model=AltCLIPVisionConfig apertus arcee aria
        aria_text audio-spectrogram-transformer=ASTConfig audioflamingo3=AudioFlamingo3Config
        audioflamingo3_encoder=AudioFlamingo3EncoderConfig autoformer aya_vision bailing_hybrid bamba bark
        bart beit bert bert-generation big_bird bigbird_pegasus=BigBirdPegasusConfig biogpt=BioGptConfig bit
        bitnet=BitNetConfig blenderbot blenderbot-small blip blip-2 blip_2_qformer=Blip2QFormerConfig
        blip_2_vision_model=Blip2VisionConfig blip_text_model=BlipTextConfig
        blip_vision_model=BlipVisionConfig bloom blt blt_global_transformer blt_local_decoder
        blt_local_encoder blt_patcher bridgetower=BridgeTowerConfig
        bridgetower_text_model=BridgeTowerTextConfig bridgetower_vision_model=BridgeTowerVisionConfig bros
        camembert canine chameleon chameleon_vqgan=ChameleonVQVAEConfig chatglm=ChatGLMConfig
        chinese_clip=ChineseCLIPConfig chinese_clip_text_model=ChineseCLIPTextConfig
        chinese_clip_vision_model=ChineseCLIPVisionConfig chmv2=CHMv2Config clap
        clap_audio_model=ClapAudioConfig clap_text_model=ClapTextConfig clip=CLIPConfig
        clip_text_model=CLIPTextConfig clip_vision_model=CLIPVisionConfig clipseg=CLIPSegConfig
        clipseg_text_model=CLIPSegTextConfig clipseg_vision_model=CLIPSegVisionConfig clvp clvp_decoder
        clvp_encoder codegen=CodeGenConfig cohere cohere2 cohere2_vision cohere_asr
        colmodernvbert=ColModernVBertConfig colpali=ColPaliConfig colqwen2=ColQwen2Config conditional_detr
        convbert=ConvBertConfig convnext=ConvNextConfig convnextv2=ConvNextV2Config cpmant=CpmAntConfig csm
        csm_depth_decoder_model=CsmDepthDecoderConfig ctrl=CTRLConfig cvt cwm d_fine dab-detr dac
        data2vec-audio=Data2VecAudioConfig data2vec-text=Data2VecTextConfig
        data2vec-vision=Data2VecVisionConfig dbrx deberta deberta-v2 decision_transformer
        deepseek-ocr=DeepseekVLV2Config deepseek_v2 deepseek_v3 deepseek_v32=_DeepseekV32ConfigAlias
        deepseek_v4=_DeepseekV4ConfigAlias deepseek_vl=DeepseekVLConfig
        deepseek_vl_hybrid=DeepseekVLHybridConfig deepseek_vl_v2=DeepseekVL2Config deformable_detr
        deit=DeiTConfig depth_anything depth_pro detr dia dia_decoder dia_encoder diffllama=DiffLlamaConfig
        dinat dinov2 dinov2_with_registers dinov3_convnext=DINOv3ConvNextConfig dinov3_vit=DINOv3ViTConfig
        distilbert=DistilBertConfig doge donut-swin dots1 dots_ocr=DotsOCRConfig dots_vlm=DotsVLMConfig
        dpr=DPRConfig dpt=DPTConfig edgetam=EdgeTamConfig edgetam_video=EdgeTamVideoConfig
        edgetam_vision_model=EdgeTamVisionConfig efficientloftr=EfficientLoFTRConfig
        efficientnet=EfficientNetConfig electra emu3 emu3_text_model=Emu3TextConfig emu3_vqgan=Emu3VQVAEConfig
        encodec encoder-decoder eomt eomt_dinov3 ernie ernie4_5=Ernie4_5Config ernie4_5_moe=Ernie4_5_MoeConfig
        ernie4_5_vl_moe=Ernie4_5_VLMoeConfig ernie4_5_vl_moe_text=Ernie4_5_VLMoeTextConfig
        ernie4_5_vl_moe_vision=Ernie4_5_VLMoeVisionConfig esm eurobert=EuroBertConfig evolla
        EvollaModel=EvollaConfig exaone exaone4 exaone_moe falcon falcon_h1 falcon_mamba fast_vlm
        fastspeech2_conformer=FastSpeech2ConformerConfig
        fastspeech2_conformer_hifigan=FastSpeech2ConformerHifiGanConfig
        fastspeech2_conformer_with_hifigan=FastSpeech2ConformerWithHifiGanConfig flaubert flava
        flava_image_model=FlavaImageConfig flava_multimodal_model=FlavaMultimodalConfig
        flava_text_model=FlavaTextConfig flex_olmo florence2 florence_vision=Florence2VisionConfig
        fnet=FNetConfig focalnet=FocalNetConfig fsmt=FSMTConfig funnel fuyu gemma gemma2 gemma3 gemma3_text
        gemma3n gemma3n_audio gemma3n_text gemma3n_vision gemma4 gemma4_audio gemma4_text gemma4_vision git
        git_vision_model=GitVisionConfig glm glm4 glm46v=Glm46VConfig glm4_moe glm4_moe_lite glm4v glm4v_moe
        glm4v_moe_text glm4v_moe_vision glm4v_text glm4v_vision glm_image glm_image_text glm_image_vision
        glm_image_vqmodel=GlmImageVQVAEConfig glm_moe_dsa glm_ocr glm_ocr_text glm_ocr_vision
        glmasr=GlmAsrConfig glmasr_encoder=GlmAsrEncoderConfig glpn=GLPNConfig got_ocr2 gpt-sw3=GPT2Config
        gpt2=GPT2Config gpt_bigcode=GPTBigCodeConfig gpt_neo=GPTNeoConfig gpt_neox=GPTNeoXConfig
        gpt_neox_japanese=GPTNeoXJapaneseConfig gpt_oss gptj=GPTJConfig granite granite_speech
        granite_speech_encoder granitemoe=GraniteMoeConfig granitemoehybrid=GraniteMoeHybridConfig
        granitemoeshared=GraniteMoeSharedConfig grounding-dino groupvit=GroupViTConfig
        groupvit_text_model=GroupViTTextConfig groupvit_vision_model=GroupViTVisionConfig helium
        hgnet_v2=HGNetV2Config hiera higgs_audio_v2 higgs_audio_v2_tokenizer hubert
        hunyuan_v1_dense=HunYuanDenseV1Config hunyuan_v1_moe=HunYuanMoEV1Config hy_v3=HYV3Config
        ibert=IBertConfig idefics idefics2 idefics2_perceiver idefics2_vision idefics3 idefics3_vision
        idefics_perciever=IdeficsPerceiverConfig idefics_vision ijepa=IJepaConfig imagegpt=ImageGPTConfig
        informer instructblip=InstructBlipConfig instructblip_qformer=InstructBlipQFormerConfig
        instructblip_vision_model=InstructBlipVisionConfig instructblipvideo=InstructBlipVideoConfig
        instructblipvideo_qformer=InstructBlipVideoQFormerConfig
        instructblipvideo_vision_model=InstructBlipVideoVisionConfig intern_s2_preview internvl=InternVLConfig
        internvl_chat=InternVLChatConfig internvl_vision=InternVLVisionConfig jais2 jamba janus
        janus_vision_model=JanusVisionConfig janus_vqgan=JanusVQVAEConfig jet_nemotron jet_vlm=JetVLMConfig
        jetmoe=JetMoeConfig jina_embeddings_v3 kimi_k2=_KimiK2ConfigAlias kimi_k25 kimi_linear
        kimi_vl=KimiVLConfig kosmos-2 kosmos-2.5=Kosmos2_5Config kosmos_2_5_text_model=Kosmos2_5TextConfig
        kosmos_2_5_vision_model=Kosmos2_5VisionConfig kosmos_2_text_model=Kosmos2TextConfig
        kosmos_2_vision_model=Kosmos2VisionConfig kyutai_speech_to_text laguna lasr_ctc=LasrCTCConfig
        lasr_encoder layoutlm=LayoutLMConfig layoutlmv2=LayoutLMv2Config layoutlmv3=LayoutLMv3Config
        layoutxlm=LayoutXLMConfig led=LEDConfig levit lfm2 lfm2_moe lfm2_vl lightglue=LightGlueConfig
        lighton_ocr=LightOnOcrConfig lilt llama llama4 llama4_text llama4_vision_model=Llama4VisionConfig
        llava llava_next llava_next_video llava_onevision longcat_flash longformer longt5=LongT5Config luke
        lw_detr lw_detr_vit=LwDetrViTConfig lxmert m2m_100=M2M100Config mamba mamba2 marian
        markuplm=MarkupLMConfig mask2former=Mask2FormerConfig maskformer=MaskFormerConfig
        maskformer-swin=MaskFormerSwinConfig mbart=MBartConfig megatron-bert metaclip_2=MetaClip2Config
        metaclip_2_text_model=MetaClip2TextConfig metaclip_2_vision_model=MetaClip2VisionConfig
        mgp-str=MgpstrConfig mimi minicpmv4_6=MiniCPMV4_6Config minicpmv4_6_vision=MiniCPMV4_6VisionConfig
        minimax=MiniMaxConfig minimax_m2=MiniMaxM2Config ministral ministral3 mistral mistral3 mistral4
        mixtral mlcd=MLCDVisionConfig mlcd_vision_model=MLCDVisionConfig mllama
        mllama_text_model=MllamaTextConfig mllama_vision_model=MllamaVisionConfig
        mm-grounding-dino=MMGroundingDinoConfig mobilebert=MobileBertConfig mobilenet_v1=MobileNetV1Config
        mobilenet_v2=MobileNetV2Config mobilevit=MobileViTConfig mobilevitv2=MobileViTV2Config
        modernbert=ModernBertConfig modernbert-decoder=ModernBertDecoderConfig modernvbert=ModernVBertConfig
        moonshine moonshine_streaming moonshine_streaming_encoder moshi moshi_depth mpnet=MPNetConfig mpt mra
        mt5=MT5Config multi_modality musicflamingo=MusicFlamingoConfig musicgen musicgen_decoder
        musicgen_melody musicgen_melody_decoder mvp nanochat=NanoChatConfig nemotron nemotron_h
        NemotronH_Nano_Omni_Reasoning_V3=NemotronH_Nano_Omni_Reasoning_V3_Config
        NemotronH_Nano_VL_V2=NemotronH_Nano_VL_V2_Config nllb-moe nomic_bert nougat nystromformer olmo olmo2
        olmo3 olmo_hybrid olmoe omdet-turbo=OmDetTurboConfig oneformer=OneFormerConfig
        openai-gpt=OpenAIGPTConfig openai_privacy_filter=OpenAIPrivacyFilterConfig opt=OPTConfig ovis2 owlv2
        owlv2_text_model=Owlv2TextConfig owlv2_vision_model=Owlv2VisionConfig owlvit=OwlViTConfig
        owlvit_text_model=OwlViTTextConfig owlvit_vision_model=OwlViTVisionConfig
        paddleocr_vl=PaddleOCRVLConfig paddleocr_vl_text=PaddleOCRTextConfig
        paddleocr_vl_vision=PaddleOCRVisionConfig paligemma=PaliGemmaConfig parakeet_ctc=ParakeetCTCConfig
        parakeet_encoder patchtsmixer=PatchTSMixerConfig patchtst=PatchTSTConfig pe_audio pe_audio_encoder
        pe_audio_video pe_audio_video_encoder pe_video pe_video_encoder pegasus pegasus_x perceiver
        perception_lm=PerceptionLMConfig persimmon phi phi3 phi4_multimodal phi4_multimodal_audio
        phi4_multimodal_vision phimoe pi0=PI0Config pix2struct=Pix2StructConfig
        pix2struct_text_model=Pix2StructTextConfig pix2struct_vision_model=Pix2StructVisionConfig pixio
        pixtral=PixtralVisionConfig plbart=PLBartConfig poolformer=PoolFormerConfig pop2piano=Pop2PianoConfig
        pp_chart2table=PPChart2TableConfig pp_doclayout_v2=PPDocLayoutV2Config
        pp_doclayout_v3=PPDocLayoutV3Config pp_lcnet=PPLCNetConfig pp_lcnet_v3=PPLCNetV3Config
        pp_ocrv5_mobile_det=PPOCRV5MobileDetConfig pp_ocrv5_mobile_rec=PPOCRV5MobileRecConfig
        pp_ocrv5_server_det=PPOCRV5ServerDetConfig pp_ocrv5_server_rec=PPOCRV5ServerRecConfig
        prompt_depth_anything prophetnet=ProphetNetConfig pvt pvt_v2 qianfan_ocr=QianfanOCRConfig
        qianfan_ocr_vision=QianfanOCRVisionConfig qwen2 qwen2_5_omni=Qwen2_5OmniConfig
        qwen2_5_omni_audio_encoder=Qwen2_5OmniAudioEncoderConfig qwen2_5_omni_bigvgan=Qwen2_5OmniBigVGANConfig
        qwen2_5_omni_dit=Qwen2_5OmniDiTConfig qwen2_5_omni_talker=Qwen2_5OmniTalkerConfig
        qwen2_5_omni_text=Qwen2_5OmniTextConfig qwen2_5_omni_thinker=Qwen2_5OmniThinkerConfig
        qwen2_5_omni_token2wav=Qwen2_5OmniToken2WavConfig
        qwen2_5_omni_vision_encoder=Qwen2_5OmniVisionEncoderConfig qwen2_5_vl=Qwen2_5_VLConfig
        qwen2_5_vl_text=Qwen2_5_VLTextConfig qwen2_5_vl_vision=Qwen2_5_VLVisionConfig qwen2_audio
        qwen2_audio_encoder qwen2_moe qwen2_vl=Qwen2VLConfig qwen2_vl_text=Qwen2VLTextConfig
        qwen2_vl_vision=Qwen2VLVisionConfig qwen3 qwen3_5=Qwen3_5Config qwen3_5_moe=Qwen3_5MoeConfig
        qwen3_5_moe_text=Qwen3_5MoeTextConfig qwen3_5_moe_vision=Qwen3_5MoeVisionConfig
        qwen3_5_text=Qwen3_5TextConfig qwen3_5_vision=Qwen3_5VisionConfig qwen3_asr=Qwen3ASRConfig
        qwen3_asr_thinker=Qwen3ASRThinkerConfig qwen3_moe qwen3_next qwen3_omni_moe
        qwen3_omni_moe_audio_encoder qwen3_omni_moe_talker_code_predictor qwen3_omni_moe_talker_text
        qwen3_omni_moe_text qwen3_omni_moe_thinker qwen3_omni_moe_vision_encoder qwen3_vl=Qwen3VLConfig
        qwen3_vl_moe=Qwen3VLMoeConfig qwen3_vl_moe_text=Qwen3VLMoeTextConfig
        qwen3_vl_moe_vision=Qwen3VLMoeVisionConfig qwen3_vl_text=Qwen3VLTextConfig
        qwen3_vl_vision=Qwen3VLVisionConfig rag recurrent_gemma reformer regnet=RegNetConfig
        rembert=RemBertConfig resnet=ResNetConfig roberta roberta-prelayernorm=RobertaPreLayerNormConfig
        roc_bert=RoCBertConfig roformer=RoFormerConfig rt_detr=RTDetrConfig rt_detr_resnet=RTDetrResNetConfig
        rt_detr_v2=RTDetrV2Config rwkv sam sam2 sam2_hiera_det_model=Sam2HieraDetConfig sam2_video
        sam2_vision_model=Sam2VisionConfig sam3 sam3_detr_decoder=Sam3DETRDecoderConfig
        sam3_detr_encoder=Sam3DETREncoderConfig sam3_geometry_encoder sam3_lite_text
        sam3_lite_text_detr_decoder=Sam3LiteTextDETRDecoderConfig
        sam3_lite_text_detr_encoder=Sam3LiteTextDETREncoderConfig sam3_lite_text_geometry_encoder
        sam3_lite_text_mask_decoder sam3_lite_text_text_model=Sam3LiteTextTextConfig sam3_mask_decoder
        sam3_tracker sam3_tracker_video sam3_video sam3_vision_model=Sam3VisionConfig
        sam3_vit_model=Sam3ViTConfig sam_hq=SamHQConfig sam_hq_vision_model=SamHQVisionConfig
        sam_vision_model=SamVisionConfig seamless_m4t=SeamlessM4TConfig seamless_m4t_v2=SeamlessM4Tv2Config
        seed_oss segformer seggpt=SegGptConfig sew=SEWConfig sew-d=SEWDConfig shieldgemma2=ShieldGemma2Config
        siglip siglip2 siglip2_text_model=Siglip2TextConfig siglip2_vision_model=Siglip2VisionConfig
        siglip_text_model=SiglipTextConfig siglip_vision_model=SiglipVisionConfig slanet=SLANetConfig
        slanext=SLANeXtConfig smollm3=SmolLM3Config smolvlm=SmolVLMConfig smolvlm_vision=SmolVLMVisionConfig
        solar_open speech-encoder-decoder speech_to_text=Speech2TextConfig speecht5=SpeechT5Config
        speecht5_hifigan=SpeechT5HifiGanConfig splinter squeezebert=SqueezeBertConfig stablelm=StableLmConfig
        starcoder2 step3_vl=Step3VLConfig step3p5 superglue=SuperGlueConfig superpoint=SuperPointConfig
        swiftformer=SwiftFormerConfig swin swin2sr=Swin2SRConfig swinv2 switch_transformers t5 t5_gemma_module
        t5gemma=T5GemmaConfig t5gemma2=T5Gemma2Config t5gemma2_decoder=T5Gemma2DecoderConfig
        t5gemma2_encoder=T5Gemma2EncoderConfig t5gemma2_text=T5Gemma2TextConfig table-transformer tapas
        textnet=TextNetConfig time_series_transformer timesfm=TimesFmConfig timesfm2_5=TimesFm2_5Config
        timesformer timm_backbone timm_wrapper trocr=TrOCRConfig tvp udop umt5=UMT5Config
        unispeech=UniSpeechConfig unispeech-sat=UniSpeechSatConfig univnet=UnivNetConfig upernet=UperNetConfig
        uvdoc=UVDocConfig uvdoc_backbone=UVDocBackboneConfig vaultgemma=VaultGemmaConfig
        vibevoice_acoustic_tokenizer=VibeVoiceAcousticTokenizerConfig
        vibevoice_acoustic_tokenizer_decoder=VibeVoiceAcousticTokenizerDecoderConfig
        vibevoice_acoustic_tokenizer_encoder=VibeVoiceAcousticTokenizerEncoderConfig
        vibevoice_asr=VibeVoiceAsrConfig video_llama_3 video_llama_3_vision video_llava
        videomae=VideoMAEConfig videomt vilt vipllava=VipLlavaConfig vision-encoder-decoder
        vision-text-dual-encoder visual_bert vit=ViTConfig vit_mae=ViTMAEConfig vit_msn=ViTMSNConfig
        vitdet=VitDetConfig vitmatte=VitMatteConfig vitpose=VitPoseConfig
        vitpose_backbone=VitPoseBackboneConfig vits vivit vjepa2=VJEPA2Config voxtral voxtral_encoder
        voxtral_realtime voxtral_realtime_encoder voxtral_realtime_text wav2vec2=Wav2Vec2Config
        wav2vec2-bert=Wav2Vec2BertConfig wav2vec2-conformer=Wav2Vec2ConformerConfig wavlm=WavLMConfig whisper
        xclip=XCLIPConfig xclip_text_model=XCLIPTextConfig xclip_vision_model=XCLIPVisionConfig xcodec
        xglm=XGLMConfig xlm=XLMConfig xlm-roberta=XLMRobertaConfig xlm-roberta-xl=XLMRobertaXLConfig
        xlnet=XLNetConfig xlstm=xLSTMConfig xmod yolos yoso youtu zamba zamba2 zoedepth=ZoeDepthConfig
    """,
    (0, 5, 13): """
        cohere2_moe deimv2 exaone4_5=Exaone4_5_Config exaone4_5_vision=Exaone4_5_VisionConfig gemma4_assistant
        granite4_vision granite4_vision_text granite_speech_plus granite_speech_plus_encoder nemotron_h_puzzle
        pp_formulanet=PPFormulaNetConfig step3p7
    """,
    (0, 5, 14): "zaya",
    (0, 5, 15): """
        cosmos3_omni deepseek_ocr2 deepseek_ocr2_encoder=DeepseekOcr2VisionEncoderConfig
        deepseek_ocr2_sam_vision_model=DeepseekOcr2SamVisionConfig deepseek_ocr2_text deepseek_ocr2_vision
        diffusion_gemma diffusion_gemma_text gemma4_unified gemma4_unified_assistant gemma4_unified_audio
        gemma4_unified_text gemma4_unified_vision glmga hrm_text hyperclovax=HyperCLOVAXConfig
        locateanything=LocateAnythingConfig mellum minimax_m3_vl=MiniMaxM3VLConfig
        minimax_m3_vl_text=MiniMaxM3VLTextConfig minimax_m3_vl_vision=MiniMaxM3VLVisionConfig
        parakeet_rnnt=ParakeetRNNTConfig parakeet_tdt=ParakeetTDTConfig pp_lcnet_v4=PPLCNetV4Config
        pp_ocrv6_medium_det=PPOCRV6MediumDetConfig pp_ocrv6_small_det=PPOCRV6SmallDetConfig
        pp_ocrv6_small_rec=PPOCRV6SmallRecConfig pp_ocrv6_tiny_rec=PPOCRV6TinyRecConfig rf_detr rf_detr_dinov2
        sapiens2 sapiens2_head unlimited-ocr=UnlimitedVLConfig
    """,
    (0, 5, 16): """
        gemma4_unified=_Gemma4UnifiedConfigAlias inkling_audio_model=InklingAudioConfig
        inkling_mm_model=InklingMMConfig inkling_model inkling_vision_model=InklingVisionConfig
    """,
    (0, 5, 17): "kimi_k3",
    (0, 5, 18): """
        interns2_mobius=InternS2MobiusConfig interns2_mobius_text=InternS2MobiusTextConfig muse_glimmer
        muse_glimmer_assistant
    """,
    (0, 5, 19): "dots3_note=Dots3Config minicpm_sala=MiniCPMHybridConfig spark2_5=Spark2_5Config",
    (0, 5, 20): """
        cosmos3_edge cosmos3_edge_projector cosmos3_edge_text cosmos3_edge_vision glm5_next glm5_next_text
        hy_v4=HYV4Config k2_horizon nanbeige nemotron_h_omni=NemotronH_Omni_Reasoning_V3_Config qwen4_exp
        qwen4_exp_text xllm
    """,
    (0, 5, 21): """
        bailing_moe_v3_vl=BailingMoeV3VLConfig bailingmm_moe_v2_lite=BailingMM2Config deepseek_v41
        deepseek_v41_text deepseek_v41_vision gigachat3_5=GigaChat35Config iquest_q1=IQuestQ1Config
        iquest_q1_mtp=IQuestQ1MTPConfig
    """,
    (0, 5, 22): """
        axk1=AXK1Config axk2=AXK2Config canary canary_decoder cohere_compass cohere_compass_text
        cohere_compass_vision embedding_gemma2 embedding_gemma2_text esmc esmfold2=EsmFold2Config fun_asr_nano
        fun_asr_nano_encoder glm5_next_vision granite_speech5_ctc=GraniteSpeech5CTCConfig
        granite_speech5_encoder granite_swa=GraniteSWAConfig granitemoe_swa=GraniteMoeSWAConfig gte
        hunyuan_vl=HunYuanVLConfig hunyuan_vl_text=HunYuanVLTextConfig hunyuan_vl_vision=HunYuanVLVisionConfig
        hyperclovax_vision_v2=HyperCLOVAXVisionV2Config inkling_audio inkling_text inkling_vision
        kimi_k25_vision=Kimi_K25VisionConfig mimo_v2_flash=MiMoV2FlashConfig minicpm3=MiniCPM3Config
        minicpmv4_7=MiniCPMV4_7Config minicpmv4_7_vision=MiniCPMV4_7VisionConfig muse_glimmer_text
        muse_glimmer_vision nemotron3_5_asr=Nemotron3_5AsrConfig nemotron3_diarization
        nemotron3_diarization_audio nemotron_asr_streaming nemotron_asr_streaming_encoder neomme=NeoMMEConfig
        neucodec=NeuCodecConfig qwen3_asr_encoder=Qwen3ASREncoderConfig qwen4_exp_vision radio
        step3p5_vision=Step3p7VisionConfig tipsv2 tipsv2_dpt tipsv2_text_model=Tipsv2TextConfig
        tipsv2_vision_model=Tipsv2VisionConfig vibevoice=VibeVoiceConfig videoprism=VideoPrismConfig
        videoprism_text_model=VideoPrismTextConfig videoprism_vision_model=VideoPrismVisionConfig xcodec2
    """,
    (0, 5, 23): "beam muse_spark muse_spark_audio muse_spark_text muse_spark_vision",
}
