"""Drafts for random servers, and what our own pools hold beside them.

python -m tests.oracle.random_pools --drafts --count 20 --seed 5 [--release 0.5.23] [--family qwen3_next]
"""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch

from runtime.forward.comm import VirtualCommunicator
from runtime.models.draft import load_drafts
from runtime.models.own_draft import OwnDraftModel
from runtime.server.flags import flags_of
from runtime.server.own_draft import OwnDraft
from runtime.server.own_layer import has_own_layer
from runtime.start.drafting import Drafting
from runtime.start.sglang_buffers import DraftAttention
from sgl_tune.deployment.deployment import Deployment
from tests.oracle.held_random import _in_bfloat16
from tests.runtime.families import make_reference
from tests.runtime.families.reference import served_json
from tests.runtime.random_models import draw

HF = dict[str, Any]
_META = torch.device("meta")
_DENSE = ("llama", "qwen2", "qwen3", "olmo2", "gemma", "granite", "mistral")
_BACKENDS = (None, None, None, "triton", "flashinfer", "fa3")
_KEPT = (None, None, None, "fp8_e4m3", "bfloat16", "auto")


# Most of which have a layer that drafts
DRAFTED = (
    *("deepseek_v3", "deepseek_v32", "glm4_moe", "glm4_moe_lite", "glm_moe_dsa", "bailing_moe_v2"),
    *("bailing_hybrid", "bailing_hybrid_v3", "ernie4_5_moe", "exaone_moe", "hy_v3", "hy_v4", "longcat_flash"),
    *("qwen3_moe", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "gpt_oss", "llama4", "gemma4", "qwen3"),
)
BLOCKS = ("DFLASH",)
_PUBLISHED = ("openai/", "meta-llama/", "Qwen/Qwen3-32B", "google/gemma-4", "moonshotai/Kimi-VL")


def goes_with_drafts(name: str, target: HF, release: str) -> bool:
    return name.startswith(_PUBLISHED) or _has_own(target, release)


def _has_own(target: HF, release: str) -> bool:
    return has_own_layer(target.get("architectures", [""])[0], tuple(map(int, release.split("."))))


def drafting(
    dice: random.Random, target: HF, release: str, groups: int, only: str | None = None
) -> dict[str, Any]:
    """Arguments of a server, and the config.json of what drafts there: none where a layer of its own does."""
    kinds = ["own", "own", "own", "its own file"] if _has_own(target, release) else []
    alone = () if groups > 1 else ("STANDALONE", "NGRAM", "EAGLE of a class", *BLOCKS)
    kind = only or dice.choice((*kinds, "EAGLE3", *alone))
    argv, draft = ["--speculative-algorithm", kind], None
    if kind in ("own", "its own file"):
        argv = ["--speculative-algorithm", dice.choice(("EAGLE", "NEXTN"))]
        draft = target if kind == "its own file" else None
    elif kind in BLOCKS:
        draft = _dflash(dice, target)
    elif kind == "EAGLE of a class":
        argv, draft = ["--speculative-algorithm", "EAGLE"], _eagle(dice, target)
    elif kind == "EAGLE3":
        draft = (_latent_eagle3 if _has_latents(target) and dice.random() < 0.5 else _eagle3)(dice, target)
    elif kind == "STANDALONE":
        draft = _standalone(dice, target)
    argv += ["--speculative-draft-model-path", "DRAFT"] if draft is not None else []
    if dice.random() < 0.6 and kind not in ("NGRAM", *BLOCKS):
        steps, topk = dice.choice((1, 2, 3, 5)), dice.choice((1, 1, 1, 2, 4))
        argv += ["--speculative-num-steps", str(steps), "--speculative-eagle-topk", str(topk)]
        argv += ["--speculative-num-draft-tokens", str(dice.choice((2, 4, 8, 16)))]
    for flag, values in (("attention-backend", _BACKENDS), ("kv-cache-dtype", _KEPT)):
        value, name = dice.choice(values) if kind != "NGRAM" else None, f"--speculative-draft-{flag}"
        argv += [] if value is None or name not in flags_of(release).by_name else [name, value]
    return {"argv": argv, "draft": draft}


def _told(target: HF) -> HF:
    return {**target, **(target.get("text_config") or {})}


def _eagle3(dice: random.Random, target: HF) -> HF:
    told = _told(target)
    heads = dice.choice((4, 8, 32))
    return {
        "architectures": ["LlamaForCausalLMEagle3"], "attention_bias": False, "draft_vocab_size": 32000,
        "hidden_act": "silu", "hidden_size": told.get("hidden_size", 64), "intermediate_size": 256,
        "max_position_embeddings": told.get("max_position_embeddings", 2048), "model_type": "llama",
        "num_attention_heads": heads, "num_hidden_layers": 1, "rms_norm_eps": 1e-05, "rope_theta": 5e5,
        "num_key_value_heads": dice.choice((1, 2, heads)), "head_dim": dice.choice((16, 64, 128)),
        "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        "vocab_size": told.get("vocab_size", 128),
        **({"num_nextn_predict_layers": dice.choice((0, 1, 2))} if dice.random() < 0.05 else {}),
    }  # fmt: skip


def _dflash(dice: random.Random, target: HF) -> HF:
    told = {**_eagle3(dice, target), "architectures": ["DFlashDraftModel"], "model_type": "qwen3"}
    del told["draft_vocab_size"]
    told.pop("num_nextn_predict_layers", None)
    layers = told["num_hidden_layers"] = dice.choice((1, 2, 5))
    chosen = dice.choice((None, [0], [0, 2]))
    kinds = [dice.choice(("full_attention", "sliding_attention")) for _ in range(layers)]
    beside = (
        {"layer_types": kinds, "sliding_window": 64, "use_sliding_window": True}
        if dice.random() < 0.4
        else {}
    )
    section = {"block_size": dice.choice((4, 8, 16)), "mask_token_id": 5, "target_layer_ids": chosen}
    section = {name: value for name, value in section.items() if value is not None}
    return {**told, **beside, "num_target_layers": 36, "dflash_config": section}


def _has_latents(target: HF) -> bool:
    told = _told(target)
    return "kv_lora_rank" in told and "index_topk" not in told


def _latent_eagle3(dice: random.Random, target: HF) -> HF:
    """Of the sizes that its target has, or of others."""
    told = {**_eagle3(dice, target), "architectures": ["Eagle3DeepseekV2ForCausalLM"]}
    del told["head_dim"]
    ranks = {"q_lora_rank": 96, "kv_lora_rank": dice.choice((64, 512)), "qk_rope_head_dim": 64}
    return {**told, **ranks, "model_type": "deepseek_v3", "qk_nope_head_dim": 128, "v_head_dim": 128}


def _eagle(dice: random.Random, target: HF) -> HF:
    told = {**_eagle3(dice, target), "num_hidden_layers": dice.choice((1, 1, 2))}
    del told["draft_vocab_size"]
    if dice.random() < 0.5:
        return {**told, "architectures": ["LlamaForCausalLMEagle"]}
    del told["attention_bias"]
    return {**told, "architectures": ["Qwen2ForCausalLMEagle"], "model_type": "qwen2"}


def _standalone(dice: random.Random, target: HF) -> HF:
    name = dice.choice(_DENSE)
    own = _told(target)
    told = {**draw(name, dice), "vocab_size": own.get("vocab_size", 128)}
    told["max_position_embeddings"] = own.get("max_position_embeddings", 2048)
    return _in_bfloat16(served_json(make_reference(name, **told)))


class Pools(Drafting):
    """Of a model runner as far as its pools and drafts go, on one stage."""

    def __init__(self, found: Deployment, is_last: bool) -> None:
        own = found.own_draft
        self.model, self.parallel = found.model, found.parallel
        self.runtime = replace(found.runtime, images_mib=0)
        self.own_draft = own if isinstance(own, OwnDraft) else None
        self.decoder = SimpleNamespace(is_last=is_last)  # type: ignore[assignment]
        self.device = SimpleNamespace(torch_device=_META)  # type: ignore[assignment]

    @property
    def counted(self) -> int:
        return self._counted_layers

    def beside(self, cell: float, kept: int) -> float:
        return self._beside_draft(cell, kept)

    @property
    def draft_dtype(self) -> str:
        return self._draft_dtype

    @property
    def draft_attention(self) -> DraftAttention | None:
        return self._draft_attention()

    def of_drafts(self) -> list[Any]:
        """Each draft's cache, where it is none of the target's."""
        self.load_drafts()
        return [held.cache for held in map(self._draft_kv, self.drafts) if held is not self.kv]

    def load_drafts(self) -> None:
        comm = VirtualCommunicator(self.parallel, 0)
        if self.own_draft is not None:
            self.drafts = (OwnDraftModel(self.own_draft, comm, _META),)
        else:
            target: Any = SimpleNamespace(build=SimpleNamespace(device=_META), comm=comm, ropes=None)
            self.drafts = load_drafts(target, self.model, self.runtime, 0) if self._num_drafts else ()


def unknown_draft(found: Deployment) -> str:
    """Why one is named, and another stands for it."""
    if "bounds the pool of layers behind a window" in found.not_counted:
        return found.not_counted
    draft = found.own_draft if found.server.draft is not None else ""
    return draft if isinstance(draft, str) else ""
