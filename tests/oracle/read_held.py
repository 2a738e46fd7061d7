"""What one rank holds of a model: SGLang's own class of it, made of tensors without data.

Runs in the oracle's interpreter. Reads cases, a JSON object a line: a config.json, tp and a rank.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import tempfile
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from tests.oracle.inside import enter, keep_output
from tests.oracle.read_adapters import pool_bytes
from tests.oracle.read_tables import table_bytes

ENCODERS = re.compile(
    r"(^|\.)(visual|audio_tower|audio_encoder|audio_projector|embed_vision|embed_audio|vision_(?!experts)\w+|vision|resampler_model|vit_large_projector|vit_downsampler2?|multi_modal_projector|linear_proj|mlp1|mm_projector|mlp_AR|vision_language_adapter|sound_encoder|projection|patch_merger|pre_mm_projector_norm|speech_embeddings|input_local_transformer|sam_model|qwen2_model|projector|vpm|resampler|embed_tokens_extend|aligner|apm|audio_projection_layer|gen_\w+)\.|^(language_model\.model\.)?(image_newline|view_seperator|separator_token)$|^norm\."
)


def main() -> None:
    enter()
    out = keep_output()
    for line in sys.stdin:
        case = json.loads(line)
        print(json.dumps(_answer(case)), file=out, flush=True)


def _answer(case: dict[str, Any]) -> Any:
    """Told "may-end", what a class ends with is its answer."""
    try:
        model = _model(case)
        if case.get("adapters"):
            return [pool_bytes(model, {**case["adapters"], "tp": case["tp"]}), 0]
        if case.get("tables"):
            return [table_bytes(model, case["rank"] * case["ep"] // case["tp"]), 0]
        if case.get("made"):
            return [_values(model), 0]
        return _bytes(model)
    except Exception as error:
        if "may-end" not in sys.argv:
            raise
        return f"{type(error).__name__}: {error}"[:120]


# Scales of the cache, which are made into Python's numbers and dropped when the weights are there; and what a
# server keeps in the host's memory.
_DROPPED = (".k_scale", ".v_scale", ".ngram_embedding.weight")
_HELD = (
    ".e_score_correction_bias",
    ".router_bias",
    ".balancing_biases",
    "visual.rotary_pos_emb.freqs_cache",  # by dots.note's tower, beside parameters
    *("resampler.pos_embed", "resampler.temporal_pos_embed"),
    "encoder.dev_type",  # of Phi-4-multimodal
    *(f"front_end.{one}" for one in ("spectrogram_window", "melscale_fbanks")),  # of MiDashengLM
    *("init_bn.running_mean", "init_bn.running_var"),
)


# Of Inkling's class, which else compiles some while it is made.
_NO_KERNELS = {f"SGLANG_OPT_USE_INKLING_{one}": "0" for one in ("CUSTOM_AR", "FUSED_ATTN_PROLOGUE")}


def _bytes(model: Any) -> list[int]:
    """Of all parameters, and of those of its encoder."""
    found = {
        name: held.numel() * held.element_size()
        for name, held in model.named_parameters()
        if not name.endswith(_DROPPED)
    }
    found |= {
        name: held.numel() * held.element_size()
        for name, held in model.named_buffers()
        if name.endswith(_HELD)
    }
    found |= {  # a table that is neither of both
        f"{name}.pe": held.pe.numel() * held.pe.element_size()
        for name, held in model.named_modules()
        if name.endswith("encoder.pos_emb")
    }
    is_idle = "model.lm_head.weight" in found  # a head beside that of its language model
    encoder = sum(size for name, size in found.items() if ENCODERS.search(name))
    encoder += found["lm_head.weight"] if is_idle and "lm_head.weight" in found else 0
    return [sum(found.values()) - encoder, encoder]


def _values(model: Any) -> int:
    """Of the text's matrices that a method will quantize once they are there, which until then are plain."""
    from sglang.srt.layers.linear import LinearBase
    from sglang.srt.layers.quantization.unquant import UnquantizedLinearMethod

    return sum(
        one.weight.numel()
        for name, one in model.named_modules()
        if isinstance(one, LinearBase) and not ENCODERS.search(f"{name}.")
        if not isinstance(one.quant_method, UnquantizedLinearMethod)
    )


def _model(case: dict[str, Any]) -> Any:
    os.environ.update({**_NO_KERNELS, **case.get("environment", {})})
    with tempfile.TemporaryDirectory(prefix=case.get("named", "")) as folder:
        return _made(case, Path(folder))


def _made(case: dict[str, Any], folder: Path) -> Any:
    import torch
    from sglang.srt.configs.model_config import ModelConfig

    from tests.oracle.release_start import _publish, _resolved

    tp, ep, dp = case["tp"], case.get("ep", 1), case.get("dp", 1)
    (folder / "config.json").write_text(json.dumps(case["config"]))
    if case.get("params"):  # which SGLang reads in its place, by the folder's name
        (folder / "params.json").write_text(json.dumps(case["params"]))
    if case.get("modelopt"):
        (folder / "hf_quant_config.json").write_text(json.dumps(case["modelopt"]))
    more = ["--tp", str(tp), "--ep", str(ep), *case.get("argv", ())]
    more += _own_class(folder, case["config"])
    more += ["--dp", str(dp), "--enable-dp-attention"] if dp > 1 else []
    args = _resolved(["--model-path", str(folder), *more])
    _reset_context()
    _publish(args)
    config = ModelConfig.from_server_args(args, is_draft_model=case.get("draft", False))
    _take_place(tp, ep, case["rank"], tp // dp, _group(*case.get("stage", (1, 0))))
    quantization = _quantization(config, args) if case.get("quantized") else None
    torch.set_default_dtype(torch.bfloat16)
    torch.cuda.Stream = torch.cuda.Event = MagicMock
    _without_gpu()
    _without_sounds()
    _with_bands()
    _with_siglip()
    _with_mobile_net()
    _with_lengths()
    _with_classes()
    _with_layers_of_transformers()
    made = _chosen(config)
    shared = _shared_experts(made, config, args, quantization) if case.get("fused") else nullcontext()
    with shared, torch.device("meta"):
        model = made(config=config.hf_config, **({"quant_config": quantization} if quantization else {}))
        return _with_another(model)


# A class that takes whatever its file tells, in place of the one that comes with a checkpoint.
_TAKES_ALL = """
from transformers import PretrainedConfig, WhisperConfig

class Told(dict):
    def __getattr__(self, name):
        if name not in self:
            raise AttributeError(name)
        return self[name]

class {name}(PretrainedConfig):
    def __init__(self, **told):
        for one in ("text_config", "llm_config", "vision_config", "audio_encoder_config"):
            if one in told:
                section, told[one] = told[one], PretrainedConfig.from_dict(told[one])
                if "rope_theta" in section:  # which transformers takes for a part of the rope
                    told[one].rope_theta = section["rope_theta"]
        if (told.get("audio_config") or {{}}).get("model_type") == "whisper":
            told["audio_config"] = WhisperConfig(**told["audio_config"])
        if "block_configs" in told:
            parts = ({{part: Told(one[part]) for part in one}} for one in told["block_configs"])
            told["block_configs"] = [Told(one) for one in parts]
        if "max_position_embeddings" in told:  # what a yarn that says no other stretches
            self.max_position_embeddings = told["max_position_embeddings"]
        if "original_max_position_embeddings" in told:  # transformers reads such a rope of what is there
            lengths = "original_max_position_embeddings", "max_position_embeddings"
            for one in (*lengths, "rope_theta", "rope_scaling", "partial_rotary_factor"):
                setattr(self, one, told.pop(one, None))
        if "rope_embedding_base" in told:  # of Phi 3 small, which makes one width of others
            self.rope_scaling = None
            inner = (told["ff_dim_multiplier"] or 0) * (told["hidden_size"] // 3) * 2
            inner += -inner % 256 if told["gegelu_pad_to_256"] else 0
            self.intermediate_size = told["ff_intermediate_size"] or inner
        super().__init__(**{{"pad_token_id": None, **told}})
"""


def _own_class(folder: Path, config: dict[str, Any]) -> list[str]:
    told = config.get("auto_map", {}).get("AutoConfig")
    if told is None:
        return []
    module, _, name = told.partition(".")
    (folder / f"{module}.py").write_text(_TAKES_ALL.format(name=name))
    return ["--trust-remote-code"]


def _without_gpu() -> None:
    """The angles of DeepSeek's YaRN are made on the GPU, whatever tensors are made on; and what is read of a
    range has to have data."""
    import torch
    from sglang.srt.layers.rotary_embedding.rope_variant import DeepseekScalingRotaryEmbedding

    DeepseekScalingRotaryEmbedding.__init__.__kwdefaults__["device"] = "meta"
    torch.linspace = partial(torch.linspace, device="cpu")
    _with_device()
    _with_tiles()
    _with_frequencies()
    _with_experts()


def _with_device() -> None:
    """Where MiniCPM-V and MiniCPM-o move what they have made, by names of their own once they are there."""
    from sglang.srt import utils

    modules = (sys.modules.get(f"sglang.srt.models.{one}") for one in ("minicpmv", "minicpmo"))
    for one in (utils, *modules):
        if one is not None:
            one.get_device = lambda *_: "meta"  # type: ignore[attr-defined]


def _with_frequencies() -> None:
    """Of Intern-S1-Pro, which asks which of them are how large."""
    import torch
    from sglang.srt.layers.rotary_embedding.rope_variant import FourierRotaryEmbedding

    own = FourierRotaryEmbedding._compute_inv_freq

    def found(self: Any, base: float) -> Any:
        self.device = "cpu"
        with torch.device("cpu"):
            kept = own(self, base).to("meta")
        self.device = "meta"
        return kept

    FourierRotaryEmbedding._compute_inv_freq = found


def _with_experts() -> None:
    """Of DBRX, whose class asks for a GPU by name; torch takes what stands there for none of its own, and
    makes data where no device is told."""
    import torch

    own = torch.empty

    def made(*sizes: Any, **more: Any) -> Any:
        without = more.get("device") in (None, "cuda")
        return own(*sizes, **{**more, **({"device": "meta"} if without else {})})

    torch.empty = made


def _with_tiles() -> None:
    """By a function of a stubbed package SGLang counts those of a GEMM on sm100."""
    import cutlass.cute

    cutlass.cute.ceil_div = lambda whole, each: -(-whole // each)


def _without_sounds() -> None:
    """What makes codes of them for MiMo stands in a folder of its own."""
    import huggingface_hub
    import torch
    from sglang.srt.models import mimo_audio

    torch.cuda.current_device = lambda: 0
    huggingface_hub.snapshot_download = lambda *_, **__: ""
    if hasattr(mimo_audio, "AudioEncoderMixin"):  # which releases before 0.5.13 have not
        mimo_audio.AudioEncoderMixin._load_mimo_audio_tokenizer = staticmethod(lambda *_: None)


def _with_bands() -> None:
    """torchaudio's, of which SGLang's MiDashengLM keeps the bands of a spectrogram."""
    import torch

    bands = MagicMock(melscale_fbanks=lambda n_freqs, n_mels, **_: torch.empty(n_freqs, n_mels))
    sys.modules["torchaudio"] = MagicMock(functional=bands)
    sys.modules["torchaudio.functional"] = bands


def _with_siglip() -> None:
    """timm's, of which SGLang's DeepSeek-VL2 makes one size: transformers has the same parameters."""
    from transformers import SiglipVisionConfig, SiglipVisionModel

    sizes = {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "image_size": 384}
    told = SiglipVisionConfig(**sizes, num_attention_heads=16, patch_size=14)
    sys.modules["timm"] = MagicMock(create_model=lambda *_, **__: SiglipVisionModel(told))


# Checkpoints that LLaVA's own name, by what their config.json has of a tower.
_ANOTHERS = {
    "openai/clip-vit-large-patch14": {"image_size": 224},
    "openai/clip-vit-large-patch14-336": {"image_size": 336},
    "google/siglip-so400m-patch14-384": {
        **{"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "image_size": 384}
    },
}
_LIKE_BOTH = {
    **{"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16},
    "patch_size": 14,
}


def _with_another(model: Any) -> Any:
    """LLaVA's class makes its tower as it reads its files, of which there are none here."""
    import torch
    from transformers import CLIPVisionModel, SiglipVisionModel

    if not hasattr(model, "vision_tower") or model.vision_tower is not None:
        return model

    def found(kind: Any, name: str, torch_dtype: Any) -> Any:
        return kind(kind.config_class(**{**_LIKE_BOTH, **_ANOTHERS[name]})).to(torch_dtype)

    for kind in (CLIPVisionModel, SiglipVisionModel):
        kind.from_pretrained = classmethod(found)
    torch.nn.Module.cuda = lambda self, *_: self
    model.load_weights(())
    return model


# Parameters of timm's mobilenetv5_300m_enc, by its own class of either version
_MOBILE_NET = {"1.0.16": 294126848, "1.0.25": 294126912}


def _with_mobile_net() -> None:
    """timm's, which transformers wraps for Gemma 3n: as many parameters as the version has that is pinned."""
    import torch
    from transformers import AutoModel, Gemma3nVisionConfig

    told = next(Path(sys.argv[1]).glob("sglang-*.dist-info/METADATA")).read_text()
    pinned = re.search(r"timm==([\d.]+)", told)
    own = AutoModel.from_config

    def made(config: Any, **more: Any) -> Any:
        if not isinstance(config, Gemma3nVisionConfig) or pinned is None:
            return own(config, **more)
        tower = torch.nn.Module()
        tower.register_parameter("timm_model", torch.nn.Parameter(torch.empty(_MOBILE_NET[pinned[1]])))
        return tower

    AutoModel.from_config = made


def _with_lengths() -> None:
    """Of what Phi-4-multimodal hears, which are counted in a tensor."""
    import torch
    from sglang.srt.models.phi4mm_utils import NemoConvSubsampling

    own = NemoConvSubsampling.__init__

    def made(self: Any, *told: Any, **more: Any) -> None:
        with torch.device("cpu"):
            own(self, *told, **more)
        self.to("meta")

    NemoConvSubsampling.__init__ = made


def _with_layers_of_transformers() -> None:
    """What is left of its tensors without data SGLang makes on the GPU: here all have none."""
    from sglang.srt.models.transformers import TransformersBase

    TransformersBase._init_parameters = lambda *_: None


def _with_classes() -> None:
    """LLaVA asks for those of its parts among all that are registered, and a loader for a checkpoint's."""
    from sglang.srt import models

    def resolve(names: Any) -> tuple[Any, str]:
        name = names if isinstance(names, str) else names[0]
        return _class_of(name), name

    every = MagicMock(__contains__=lambda _, name: _is_served(name))
    asked = {"is_arch_supported": _is_served, "get_supported_archs": lambda: every}  # of two releases
    found = SimpleNamespace(resolve_model_cls=resolve, **asked)
    models.registry = SimpleNamespace(ModelRegistry=found)
    sys.modules["sglang.srt.models.registry"] = models.registry


def _chosen(config: Any) -> Any:
    """A quantized Mixtral's is not the one that its file names."""
    from sglang.srt.model_loader.utils import get_model_architecture

    return get_model_architecture(config)[0]


def _shared_experts(made: Any, config: Any, args: Any, quantization: Any) -> Any:
    """As a loader comes to them: kept apart, or behind the routed ones. Old releases have them in a class,
    and those from 0.5.18 to 0.5.22 in what a loader settles for all."""
    try:
        from sglang.srt.layers.dp_attention import initialize_dp_attention_flags
        from sglang.srt.layers.moe import utils
        from sglang.srt.runtime_context import get_model
    except ImportError:
        _initialize_experts(args)
        return _settled_experts(made, config, quantization)
    utils.initialize_moe_config()
    initialize_dp_attention_flags(args)
    if not hasattr(utils, "resolve_shared_experts_config"):
        return _settled_experts(made, config, quantization)
    found = utils.resolve_shared_experts_config(made, config.hf_config, quantization)
    return get_model().override(shared_experts=found)


def _settled_experts(made: Any, config: Any, quantization: Any) -> Any:
    from sglang.srt.layers.moe import utils

    if hasattr(utils, "install_shared_experts_fusion_decision"):
        utils.install_shared_experts_fusion_decision(made, config.hf_config, quantization)
    return nullcontext()


def _initialize_experts(args: Any) -> None:
    """By their backend, some of which pad them."""
    from sglang.srt.layers.moe.utils import initialize_moe_config

    initialize_moe_config(*[args][: initialize_moe_config.__code__.co_argcount])


def _quantization(config: Any, args: Any) -> Any:
    """As a model runner and its loader come to it, with what the layers then ask for."""
    from sglang.srt.configs.load_config import LoadConfig
    from sglang.srt.layers import dp_attention
    from sglang.srt.model_loader.loader import _get_quantization_config

    _initialize_experts(args)
    if hasattr(dp_attention, "initialize_dp_attention_flags"):
        dp_attention.initialize_dp_attention_flags(args)
    return _get_quantization_config(config, LoadConfig())


def _reset_context() -> None:
    try:
        from sglang.srt import runtime_context

        runtime_context.reset_context()
    except (ImportError, AttributeError):  # of a release before 0.5.18
        return


def _take_place(tp: int, ep: int, rank: int, attention: int, stage: Any) -> None:
    own = _group(attention, rank % attention)
    groups = {"tp_group": _group(tp, rank), "attn_tp_group": own, "pp_group": stage}
    experts = {
        "moe_ep_group": _group(ep, rank * ep // tp),
        "moe_tp_group": _group(tp // ep, rank % (tp // ep)),
    }
    ranks = {"tp_rank": rank, "attn_tp_rank": rank % attention}
    ranks |= {"pp_rank": stage.rank_in_group}
    ranks |= {"moe_ep_rank": rank * ep // tp, "attn_dp_rank": rank // attention}
    try:
        from sglang.srt.runtime_context import get_parallel

        get_parallel().override_permanently(**groups, **experts, **ranks, moe_tp_rank=rank % (tp // ep))
    except (ImportError, AttributeError):
        pass
    _join(groups | experts, attention, tp // attention, ranks["attn_dp_rank"])


def _join(groups: dict[str, Any], attention: int, attn_dp: int, attn_dp_rank: int) -> None:
    """Releases before 0.5.21 ask the groups themselves."""
    from sglang.srt.distributed import parallel_state
    from sglang.srt.layers import dp_attention

    one = _group(1, 0)
    of_names = {name.removesuffix("_group"): group for name, group in groups.items()}
    for name in ("WORLD", "TP", "ATTN_TP", "ATTN_CP", "DCP", "MOE_DP", "MOE_EP", "MOE_TP", "PP"):
        if hasattr(parallel_state, f"_{name}"):
            setattr(parallel_state, f"_{name}", of_names.get(name.lower(), one))
    for name, value in (("_ATTN_DP_RANK", attn_dp_rank), ("_ATTN_DP_SIZE", attn_dp)):
        if hasattr(dp_attention, name):
            setattr(dp_attention, name, value)
    if hasattr(dp_attention, "_ENABLE_DP_ATTENTION_FLAG"):
        dp_attention._ENABLE_DP_ATTENTION_FLAG = attn_dp > 1
    elif not hasattr(dp_attention, "initialize_dp_attention_flags"):  # before 0.5.21
        from sglang.srt.runtime_context import get_flags

        get_flags().dp.enabled = attn_dp > 1


def _group(size: int, rank: int) -> Any:
    device = SimpleNamespace(rank=lambda: rank, size=lambda: size)
    edges = {"is_first_rank": rank == 0, "is_last_rank": rank == size - 1}
    edges |= {"cpu_group": None, "device_group": device}
    edges |= {"ca_comm": None}  # of which Kimi K3 asks
    return SimpleNamespace(world_size=size, rank_in_group=rank, rank=rank, **edges)


def _is_served(architecture: str) -> bool:
    try:
        return bool(_class_of(architecture))
    except LookupError:
        return False


def _class_of(architecture: str) -> Any:
    """Of modules that have one of that name, the one that serves it."""
    from sglang.srt import models

    root, found = Path(models.__path__[0]), []
    for file in root.rglob("*.py"):
        if re.search(rf"^class {architecture}[(:]", file.read_text(), re.MULTILINE):
            inner = ".".join(file.relative_to(root).with_suffix("").parts)
            module = importlib.import_module(f"sglang.srt.models.{inner}")
            made, served = getattr(module, architecture), getattr(module, "EntryClass", ())
            if made in (served if isinstance(served, list | tuple) else [served]):
                return made
            found.append(made)
    if not found:
        raise LookupError(f"no module has {architecture}")
    return found[0]


if __name__ == "__main__":
    main()
