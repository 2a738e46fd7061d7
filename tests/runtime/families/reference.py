"""transformers' models of these sizes, with weights so large that every part shows in the logits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from runtime.server.decoders.served_classes import SERVED
from tests.runtime import canvas, classless
from tests.runtime.families.known import TINY
from tests.runtime.families.sizes import COMMON, VOCAB


def sizes_of(name: str, **changes: Any) -> dict[str, Any]:
    """What its config class is told."""
    apart = TINY[name].spelled_apart
    common = {one: size for one, size in COMMON.items() if one not in apart}
    return {**common, **TINY[name].sizes, **changes}


def make_reference(name: str, vision: dict[str, Any] | None = None, **changes: Any) -> Any:
    """A transformers model in fp32 with eager attention; `vision` changes a multimodal model's encoder."""
    import transformers
    from transformers import AutoModelForMultimodalLM

    tiny = TINY[name]
    if name in classless.CLASSLESS:
        told = sizes_of(name, **changes)
        return classless.make(name, tiny.as_published(told) if tiny.as_published else told, _randomize)
    if tiny.inside is not None:
        whole = make_reference(tiny.inside, **{**tiny.sizes, **changes})
        if tiny.inside == "diffusion_gemma":
            canvas.blind(whole)
        whole.model.vision_model = whole.model.multi_modal_projector = None
        told = {"architectures": [], **whole.config.text_config.to_dict(), "model_type": name}
        whole.saved_as = tiny.as_published(told) if tiny.as_published else told
        return whole
    if tiny.tower is not None:
        config, make = _wrapped(name, changes, vision or {}), AutoModelForMultimodalLM.from_config
    else:
        config = getattr(transformers, tiny.config_class)(**sizes_of(name, **changes))
        make = classless.of_text
    config._attn_implementation = "eager"
    model = _made(make, config)
    model.tensor_names = tiny.renamed
    if model.config.model_type == "diffusion_gemma":
        return canvas.of_prompts(model)
    if tiny.as_published is not None:
        model.saved_as = tiny.as_published(model.config.to_dict())
    return model


def _made(make: Callable[[Any], Any], config: Any) -> Any:
    """On meta there is nothing to set, and torch works out each such call in Python."""
    from transformers.initialization import no_init_weights

    if torch.get_default_device().type == "meta":
        with no_init_weights():
            model = make(config).float().eval()
        model.tie_weights()
        return model
    model = make(config).float().eval()
    _randomize(model)
    return model


def config_json(model: Any) -> dict[str, Any]:
    """As its checkpoint has it."""
    told: dict[str, Any] = json.loads(json.dumps(getattr(model, "saved_as", None) or model.config.to_dict()))
    return told


def served_json(model: Any) -> dict[str, Any]:
    """... and of a class that SGLang has, where it is of another or of none."""
    told = config_json(model)
    served = SERVED.get(told["model_type"], ())
    if served and (told.get("architectures") or [None])[0] not in served:
        told["architectures"] = [served[0]]
    return told


def _wrapped(name: str, changes: dict[str, Any], tower: dict[str, Any]) -> Any:
    import transformers

    tiny = TINY[name]
    section = {**COMMON, "tie_word_embeddings": False, **tiny.sizes, **changes}
    ties = bool(section.get("tie_word_embeddings"))
    return getattr(transformers, tiny.config_class)(
        text_config=section,
        **{tiny.tower_section: {**(tiny.tower or {}), **tower}},
        **tiny.beside,
        tie_word_embeddings=ties,
    )


def tensors(model: Any) -> dict[str, torch.Tensor]:
    """Under the names that they have in a checkpoint, where its class has them under others."""
    if hasattr(model, "classless"):
        return classless.tensors(model)
    named = dict(model.named_parameters())
    for own, other in model.tensor_names.items():
        named = {name.replace(own, other): tensor for name, tensor in named.items()}
    return named


def save(model: Any, folder: Path, **options: Any) -> Path:
    if hasattr(model, "classless"):
        return classless.save(model, folder)
    # Or layers would be called blocks, as a tower's are, norms by one name, and gates by that of others.
    if model.config.model_type in ("kimi_k25", "deepseek_v4", "hy_v4"):
        options.setdefault("save_original_format", False)
    model.save_pretrained(folder, **options)
    if hasattr(model, "saved_as"):
        (folder / "config.json").write_text(json.dumps(model.saved_as))
    _name_class(folder / "config.json")
    if "thinker_config" in config_json(model):
        _name_within(folder / "model.safetensors", "thinker")
    return folder


def _name_class(file: Path) -> None:
    """As SGLang calls it, where transformers has another name for it."""
    told = json.loads(file.read_text())
    served = SERVED.get(told["model_type"], ())
    if served and told.get("architectures") and told["architectures"][0] not in served:
        file.write_text(json.dumps({**told, "architectures": [served[0]]}))


def _name_within(file: Path, whole: str) -> None:
    from safetensors.torch import load_file, save_file

    save_file({f"{whole}.{name}": tensor for name, tensor in load_file(file).items()}, file)


def prompts(*lengths: int, seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(VOCAB, (length,), generator=generator).tolist() for length in lengths]


@torch.no_grad()
def reference_logits(model: Any, tokens: list[int]) -> torch.Tensor:
    """[tokens, vocab]: what each position predicts; of a model that embeds [1, width], the mean of all."""
    if type(model).__name__ == "Gemma3TextModel":
        rows = model(torch.tensor([tokens])).last_hidden_state[0]
        return F.normalize(rows.mean(0, keepdim=True), dim=-1)
    return model(torch.tensor([tokens])).logits[0]


def _most_experts(model: torch.nn.Module) -> int:
    return int(model.config.n_routed_experts)  # type: ignore[union-attr]


# Buffers that follow from sizes and fields.
_OF_THE_CONFIG = (
    *("inv_freq", "embed_scale", "mup_vector", "attn.embed_positions"),
    *("_input_scale", "_projection_scale"),
)


def _randomize(model: torch.nn.Module) -> None:
    generator = torch.Generator().manual_seed(1)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if name.endswith("tid2eid"):
            ranked = torch.rand(len(tensor), _most_experts(model), generator=generator).argsort(-1)
            tensor.data.copy_(ranked[:, : tensor.shape[1]])
        if not tensor.is_floating_point() or any(one in name for one in _OF_THE_CONFIG):
            continue
        noise = torch.randn(tensor.shape, generator=generator)
        if ("norm" in name and name.endswith("weight")) or name.endswith("layer_scalar"):
            tensor.data.add_(0.2 * noise)  # to the one, or the nought, that leaves a value as it is
        elif tensor.dim() < 2:
            tensor.data.copy_(0.3 * noise)
        elif "embed" in name:
            tensor.data.copy_(noise)
        else:
            tensor.data.copy_(noise * tensor.shape[-1] ** -0.5)
