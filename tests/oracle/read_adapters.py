"""What SGLang's own pool of adapters keeps beside a model of tensors without data: see read_held.py."""

from __future__ import annotations

import inspect
from typing import Any
from unittest.mock import MagicMock, patch


def pool_bytes(model: Any, asked: dict[str, Any]) -> int:
    import torch
    from sglang.srt.lora import lora_manager  # noqa: F401  first, or its modules ask for each other
    from sglang.srt.lora.mem_pool import LoRAMemoryPool
    from sglang.srt.lora.utils import EMBEDDING_NAMES, auto_detect_lora_target_modules
    from sglang.srt.lora.utils import get_normalized_target_modules as normalized

    config = model.config
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    modules = normalized(asked["modules"])
    if modules == {"all"}:
        modules = auto_detect_lora_target_modules(model) | set(EMBEDDING_NAMES)
    _untie(model, config, modules)
    told = {
        "base_hf_config": config,
        "max_loras_per_batch": asked["slots"],
        "dtype": torch.bfloat16,
        "max_lora_rank": asked["rank"],
        "target_modules": modules,
        "base_model": model,
        "eviction_policy": "lru",
        "lora_added_tokens_size": 0,
        "tp_size": asked["tp"],
        "tp_rank": asked["tp"] - 1,
        "attn_tp_size": asked["tp"],
    }
    wanted = inspect.signature(LoRAMemoryPool.__init__).parameters
    pool = LoRAMemoryPool(**{name: value for name, value in told.items() if name in wanted})
    lists = (*pool.A_buffer.values(), *pool.B_buffer.values())
    singles = (pool.embedding_A_buffer, pool.embedding_B_buffer, pool.lm_head_A_buffer, pool.lm_head_B_buffer)
    kept = [one for each in lists for one in each] + [one for each in singles for one in each.values()]
    return sum(one.numel() * one.element_size() for one in kept)


def _untie(model: Any, config: Any, modules: set[str]) -> None:
    """A head that is an embedding becomes one of its own, as SGLang does before it asks for sizes."""
    import torch
    from sglang.srt.lora.lora_manager import LoRAManager

    tensor = torch.tensor
    manager = LoRAManager.__new__(LoRAManager)
    manager.base_model, manager.base_hf_config = model, config
    manager.lora_backend, manager.target_modules = MagicMock(), modules & {"lm_head"}
    with patch.object(torch, "tensor", lambda *told, pin_memory=False, **more: tensor(*told, **more)):
        manager.init_lora_modules()
