"""SGLang's classes whose layers each model_type's are here.

It makes the class that `architectures` names, whatever model_type says: one that embeds, classifies or drafts
has the same fields in its config.json, and other layers.
"""

from __future__ import annotations

from runtime.server.decoders.drafts import is_draft
from runtime.server.decoders.fields import HF, architecture_of
from runtime.server.decoders.scores import NORMAL_WEIGHTS
from runtime.server.decoders.wrapper_fields import LLAVA_TEXTS
from runtime.server.errors import Unsupported

# A model_type that is not here is chosen by its class: LongCat-Flash.
_TOLD = """
    bailing_hybrid BailingMoeV2_5ForCausalLM BailingMoeV3ForCausalLM
    bailing_hybrid_v3 BailingMoeV3ForCausalLM
    bailing_moe BailingMoeForCausalLM BailingMoEForCausalLM BailingMoeV2ForCausalLM
    bailing_moe_v2 BailingMoeV2ForCausalLM
    bailing_moe_v3_vl BailingMoeV3VLForConditionalGeneration
    bailingmm_moe_v2_lite BailingMM2NativeForConditionalGeneration BailingMMNativeForConditionalGeneration
    llama LlamaForCausalLM LlamaEmbeddingModel LlamaForClassification LlamaForSequenceClassification
    mistral MistralForCausalLM MistralModel
    mixtral MixtralForCausalLM QuantMixtralForCausalLM Grok1ForCausalLM Grok1ModelForCausalLM
    mixtral_quant QuantMixtralForCausalLM
    qwen2 Qwen2ForCausalLM Qwen2ForSequenceClassification Qwen2ForRewardModel MiMoV2ASRForCausalLM
    mimo_v2_asr MiMoV2ASRForCausalLM
    qwen2_moe Qwen2MoeForCausalLM
    qwen3 Qwen3ForCausalLM Qwen3Model Qwen3ForSequenceClassification Qwen3ForRewardModel
    qwen3_moe Qwen3MoeForCausalLM
    qwen3_next Qwen3NextForCausalLM
    qwen3_5_text Qwen3_5ForCausalLM
    qwen3_5_moe_text Qwen3_5MoeForCausalLM
    mimo MiMoForCausalLM
    midashenglm MiDashengLMModel
    mimo_v2 MiMoV2ForCausalLM
    mimo_v2_flash MiMoV2FlashForCausalLM MiMoV2ForCausalLM
    dbrx DbrxForCausalLM
    deepseek DeepseekForCausalLM
    deepseek_vl_v2 DeepseekOCRForCausalLM DeepseekVL2ForCausalLM
    unlimited-ocr UnlimitedOCRForCausalLM
    deepseek_vl2_text DeepseekVL2ForCausalLM DeepseekV2ForCausalLM
    deepseek_v2 DeepseekV2ForCausalLM
    deepseek_v3 DeepseekV3ForCausalLM MistralLarge3ForCausalLM
    deepseek_v32 DeepseekV32ForCausalLM
    deepseek_v4 DeepseekV4ForCausalLM
    kimi_k2 DeepseekV3ForCausalLM
    kimi_k25 KimiK25ForConditionalGeneration
    kimi_k3 KimiK3ForConditionalGeneration
    kimi_k3_text KimiK3LinearForCausalLM
    kimi_linear KimiLinearForCausalLM KimiK3LinearForCausalLM
    kimi_vl KimiVLForConditionalGeneration
    glm4 Glm4ForCausalLM
    glm4_moe Glm4MoeForCausalLM
    glm4_moe_lite Glm4MoeLiteForCausalLM
    glm_moe_dsa GlmMoeDsaForCausalLM
    glm4v Glm4vForConditionalGeneration
    glm4v_moe Glm4vMoeForConditionalGeneration
    glm_ocr GlmOcrForConditionalGeneration
    glm_ocr_text GlmOcrForConditionalGeneration
    glm46v Glm4vForConditionalGeneration Glm4vMoeForConditionalGeneration
    glm5_next Glm5NextForConditionalGeneration
    glm5_next_text Glm5NextForConditionalGeneration
    gpt2 GPT2LMHeadModel
    gpt_oss GptOssForCausalLM
    minicpm MiniCPMForCausalLM
    minicpm3 MiniCPM3ForCausalLM
    minicpm_sala MiniCPMSALAForCausalLM
    minicpmo MiniCPMO
    minicpmv MiniCPMV
    minicpmv4_6 MiniCPMV4_6ForConditionalGeneration
    minicpmv4_7 MiniCPMV4_7ForConditionalGeneration
    mllama MllamaForConditionalGeneration
    mllama_text_model MllamaForConditionalGeneration
    moss_vl MossVLForConditionalGeneration
    moss_vl_text MossVLForConditionalGeneration
    minimax_m2 MiniMaxM2ForCausalLM
    muse_glimmer MuseGlimmerForConditionalGeneration
    muse_glimmer_text MuseGlimmerForConditionalGeneration
    muse_spark MuseSparkForConditionalGeneration
    muse_spark_text MuseSparkForConditionalGeneration
    minimax_m3_vl MiniMaxM3SparseForConditionalGeneration
    minimax_m3_vl_text MiniMaxM3SparseForCausalLM
    ernie4_5 Ernie4_5_ForCausalLM Ernie4_5ForCausalLM
    ernie4_5_of_transformers Ernie4_5ForCausalLM
    ernie4_5_moe Ernie4_5_MoeForCausalLM
    paddleocr_vl PaddleOCRVLForConditionalGeneration
    paddleocr_vl_text PaddleOCRVLForConditionalGeneration
    ernie4_5_moe_vl Ernie4_5_VLMoeForConditionalGeneration
    olmo OlmoForCausalLM
    olmo2 Olmo2ForCausalLM
    olmo3 Olmo2ForCausalLM
    olmoe OlmoeForCausalLM
    gpt_bigcode GPTBigCodeForCausalLM
    gptj GPTJForCausalLM
    opt OPTForCausalLM
    nanbeige NanbeigeForCausalLM NanbeigeForSequenceClassification
    jet_nemotron JetNemotronForCausalLM
    baichuan BaichuanForCausalLM
    chatglm ChatGLMModel
    beam BeamForCausalLM
    bert BertModel BertForSequenceClassification Contriever
    xlm-roberta XLMRobertaModel XLMRobertaForSequenceClassification
    inkling_mm_model InklingForConditionalGeneration
    inkling_model InklingForConditionalGeneration
    orion OrionForCausalLM
    xverse XverseForCausalLM XverseMoeForCausalLM
    xverse_moe XverseMoeForCausalLM
    spark2_5 Spark2_5ForCausalLM
    TeleFLM TeleFLMForCausalLM
    qwen QWenLMHeadModel
    exaone ExaoneForCausalLM
    exaone4 Exaone4ForCausalLM
    exaone_moe ExaoneMoEForCausalLM ExaoneMoeForCausalLM
    phi3 Phi3ForCausalLM
    phimoe PhiMoEForCausalLM
    mellum MellumForCausalLM
    nemotron-nas DeciLMForCausalLM
    nemotron_h NemotronHForCausalLM
    nemotron_h_puzzle NemotronHPuzzleForCausalLM
    zaya ZayaForCausalLM
    mamba MambaForCausalLM
    mamba2 Mamba2ForCausalLM
    falcon_mamba FalconMambaForCausalLM
    NemotronH_Nano_VL_V2 NemotronH_Nano_VL_V2
    NemotronH_Nano_Omni_Reasoning_V3 NemotronH_Nano_Omni_Reasoning_V3
    nemotron_h_omni NemotronH_Omni_Reasoning_V3
    gemma GemmaForCausalLM
    gigachat3_5 GigaChat35ForCausalLM
    gemma2 Gemma2ForCausalLM Gemma2ForSequenceClassification
    gemma3 Gemma3ForConditionalGeneration
    gemma3_text Gemma3ForCausalLM Gemma3TextModel
    embedding_gemma Gemma3TextModel
    gemma3n Gemma3nForConditionalGeneration
    gemma3n_text Gemma3nForCausalLM
    gemma4 Gemma4ForConditionalGeneration
    gemma4_text Gemma4ForCausalLM
    diffusion_gemma DiffusionGemmaForBlockDiffusion
    diffusion_gemma_text DiffusionGemmaForBlockDiffusion
    gemma4_unified Gemma4UnifiedForConditionalGeneration
    granite GraniteForCausalLM
    granitemoe GraniteMoeForCausalLM
    granitemoehybrid GraniteMoeHybridForCausalLM
    granitemoeshared GraniteMoeSharedForCausalLM
    granite_swa GraniteSWAForCausalLM
    granitemoe_swa GraniteMoeSWAForCausalLM
    llama4 Llama4ForConditionalGeneration
    llama4_text Llama4ForCausalLM Llama4ForConditionalGeneration
    ministral3 Ministral3ForCausalLM
    mistral3 Mistral3ForConditionalGeneration LightOnOCRForConditionalGeneration
    llava LlavaForConditionalGeneration
    locateanything LocateAnythingForConditionalGeneration
    lighton_ocr LightOnOCRForConditionalGeneration
    mistral4 Mistral4ForCausalLM
    mistral_large_3 MistralLarge3ForCausalLM
    pixtral PixtralForConditionalGeneration
    hunyuan_v1_dense HunYuanDenseV1ForCausalLM
    hunyuan_v1_moe HunYuanMoEV1ForCausalLM
    persimmon PersimmonForCausalLM
    phi PhiForCausalLM
    phi3small Phi3SmallForCausalLM
    solar SolarForCausalLM
    seed_oss SeedOssForCausalLM
    smollm3 SmolLM3ForCausalLM
    helium HeliumForCausalLM
    gpt_neox GPTNeoXForCausalLM
    jais2 Jais2ForCausalLM
    cwm CwmForCausalLM
    ministral MinistralForCausalLM
    dots1 Dots1ForCausalLM
    solar_open SolarOpenForCausalLM
    stablelm StableLmForCausalLM
    starcoder2 Starcoder2ForCausalLM
    grok Grok1ForCausalLM Grok1ModelForCausalLM
    step3_vl Step3VLForConditionalGeneration
    step3_text Step3VLForConditionalGeneration
    step3p5 Step3p5ForCausalLM
    step3p7 Step3p7ForConditionalGeneration
    step_robotics StepVLForConditionalGeneration
    sarashina2_vision Sarashina2VisionForCausalLM
    nvila NVILAForConditionalGeneration
    nvila_lite NVILALiteForConditionalGeneration
    sarvam_mla SarvamMLAForCausalLM
    sarvam_moe SarvamMoEForCausalLM
    sdar SDARForCausalLM
    sdar_moe SDARMoeForCausalLM
    llada2_moe LLaDA2MoeModelLM
    dots_ocr DotsOCRForCausalLM
    dots_vlm DotsVLMForCausalLM
    dots_vlm_text DotsVLMForCausalLM
    dots3_note Dots3NoteForCausalLM
    dots3_note_text Dots3NoteForCausalLM
    arcee ArceeForCausalLM
    apertus ApertusForCausalLM
    lfm2 Lfm2ForCausalLM
    lfm2_moe Lfm2MoeForCausalLM
    lfm2_vl Lfm2VlForConditionalGeneration
    cohere CohereForCausalLM
    cohere2 Cohere2ForCausalLM
    cohere2_moe Cohere2MoeForCausalLM
    cohere2_vision Cohere2VisionForConditionalGeneration
    internlm2 InternLM2ForCausalLM InternLM2ForRewardModel
    internlm3 InternLM3ForCausalLM
    iquest_q1 IQuestQ1ForCausalLM
    iquestcoder IQuestCoderForCausalLM
    iquestloopcoder IQuestLoopCoderForCausalLM
    k2_horizon K2HorizonForCausalLM
    internvl_chat InternVLChatModel
    interns1 InternS1ForConditionalGeneration
    interns1_pro InternS1ProForConditionalGeneration
    intern_s2_preview InternS2PreviewForConditionalGeneration
    interns2_mobius InternS2MobiusForConditionalGeneration
    hy_v3 HYV3ForCausalLM
    hy_v4 HYV4ForCausalLM
    qwen4_exp Qwen4ExpForConditionalGeneration
    qwen4_exp_text Qwen4ExpForConditionalGeneration
    laguna LagunaForCausalLM
    falcon_h1 FalconH1ForCausalLM
    afmoe AfmoeForCausalLM
    qwen2_vl Qwen2VLForConditionalGeneration
    qwen2_5_vl Qwen2_5_VLForConditionalGeneration
    qwen3_vl Qwen3VLForConditionalGeneration
    qwen3_vl_moe Qwen3VLMoeForConditionalGeneration
    phi4mm Phi4MMForCausalLM
    multi_modality MultiModalityCausalLM
    pointsv1.5_chat POINTSV15ChatModel
    qwen2_audio Qwen2AudioForConditionalGeneration
    qwen3_asr Qwen3ASRForConditionalGeneration
    glmasr GlmAsrForConditionalGeneration
    voxtral VoxtralForConditionalGeneration
    qwen3_omni_moe Qwen3OmniMoeForConditionalGeneration
    qwen3_5 Qwen3_5ForConditionalGeneration
    qwen3_5_moe Qwen3_5MoeForConditionalGeneration
"""
SERVED = {words[0]: tuple(words[1:]) for words in map(str.split, _TOLD.strip().splitlines())}
SERVED["llava"] += tuple(LLAVA_TEXTS)
SERVED["llama"] += (NORMAL_WEIGHTS,)
CLASSES = frozenset(name for names in SERVED.values() for name in names)


def check_class(hf: HF) -> None:
    """Where a class is named, and it is none of these."""
    kind, name = str(hf.get("model_type", "")), architecture_of(hf)
    if name and not is_draft(hf) and name not in SERVED.get(kind, (name,)):
        raise Unsupported(
            f"config.json: architectures names {name[:60]}: the layers of SGLang's class are not known here, "
            f"those of a {kind} are {' and '.join(SERVED[kind])}'s"
        )
