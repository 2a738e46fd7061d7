"""The config class whose name stands in the key."""

from __future__ import annotations

from runtime.server.checkpoint import Checkpoint

_OTHERWISE = {
    "minimax_m2": "MiniMaxM2Config",
    "deepseek_v32": "_DeepseekV32ConfigAlias",
    "kimi_k2": "_KimiK2ConfigAlias",
}


def config_class(model: Checkpoint) -> str:
    kind = model.model_type
    usual = "".join(part[:1].upper() + part[1:] for part in kind.split("_"))
    return _OTHERWISE.get(kind, f"{usual}Config")
