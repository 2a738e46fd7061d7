from __future__ import annotations

from tests.runtime.chatglm import as_published
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["chatglm"] = Tiny(
    "ChatGLMConfig",
    {"multi_query_attention": True, "add_qkv_bias": True},
    {
        "num_hidden_layers": (1, 2, 3),
        "num_attention_heads": (4, 8),
        "ffn_hidden_size": (48, 96),
        "layernorm_epsilon": (1e-6, 1e-2),
        "multi_query_attention": (*(True,) * 4, False),
        "multi_query_group_num": (1, 2, 4),
        "add_qkv_bias": (*(True,) * 3, False),
        "rope_ratio": (1, 1, 500, 0.5),
        "add_bias_linear": (*(False,) * 19, True),
        "rmsnorm": (*(True,) * 19, False),
        "post_layer_norm": (*(True,) * 19, False),
        "tie_word_embeddings": (*(False,) * 19, True),
    },
    as_published=as_published,
)
