"""GLM-5: DeepSeek's layers, and an indexer whose key and head weights come from one matrix product."""

from dataclasses import dataclass, replace

from runtime.models import deepseek
from runtime.server.config import ModelConfig
from runtime.server.errors import ConfigError
from runtime.server.family import Family


@dataclass(frozen=True, kw_only=True)
class Glm5Config(deepseek.SparseConfig):
    intermediate_size: int = 12288
    q_lora_rank: int | None = 2048
    v_head_dim: int = 256
    qk_nope_head_dim: int = 192
    n_group: int = 1
    topk_group: int = 1
    max_position_embeddings: int = 202752
    rms_norm_eps: float = 1e-5
    index_n_heads: int = 32
    index_topk_freq: int = 1

    def shares_indexers(self) -> bool:
        """Whether layers share indexers, which config.json says in one of three ways."""
        kinds = set()
        for name in ("indexer_types", "index_topk_pattern"):
            listed = self.hf.get(name) or ()
            if not isinstance(listed, (str, list, tuple)):
                raise ConfigError(f"config.json: {name} is {listed!r:.60}: a kind a layer is needed")
            kinds |= set(map(str, listed))
        return bool({"shared", "S"} & kinds) or self.index_topk_freq > 1


def glm5(c: Glm5Config) -> ModelConfig:
    if c.shares_indexers():
        c.cannot("layers share an indexer: this runtime gives each layer its own")
    traits = replace(deepseek.TRAITS, fuses_shared_of=256)
    return deepseek.decoder(c, True, c.indexer(is_interleaved=True), traits)


FAMILIES = (
    Family(
        "glm_moe_dsa",
        "GlmMoeDsaForCausalLM",
        "GlmMoeDsaConfig",
        Glm5Config,
        glm5,
        attends="sparse",
        **deepseek.SERVED,
    ),
)
