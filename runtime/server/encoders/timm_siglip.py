"""timm's SigLIP, as DeepSeek-VL2 and Janus see with it, each of one size: ranks share its heads, or do not.

Its pool of what was seen is made, too, and nobody asks it.
"""

from __future__ import annotations

from dataclasses import dataclass

from runtime.server.encoders.weight import Weights, attention, layer_norm, layers, linear, named, whole


@dataclass(frozen=True, slots=True)
class TimmSiglip:
    width: int
    inner: int
    layers: int
    patch: int
    shared_heads: int | None = None  # among ranks

    def weights(self, patches: int) -> Weights:
        yield from whole("pos_embed", 1, patches, self.width)
        yield from whole("patch_embed.proj.weight", self.width, 3, self.patch, self.patch)
        yield from whole("patch_embed.proj.bias", self.width)
        yield from layers("blocks", self.layers, self._block())
        yield from layer_norm("norm", self.width)
        yield from whole("attn_pool.latent", 1, 1, self.width)
        for name, rows in (("q", self.width), ("kv", 2 * self.width), ("proj", self.width)):
            yield from linear(f"attn_pool.{name}", rows, self.width)
        yield from layer_norm("attn_pool.norm", self.width)
        yield from named("attn_pool", self._mlp())

    def _block(self) -> Weights:
        yield from layer_norm("norm1", self.width)
        if self.shared_heads is None:
            yield from linear("attn.qkv", 3 * self.width, self.width)
            yield from linear("attn.proj", self.width, self.width)
        else:
            yield from attention(self.width, self.shared_heads)
        yield from layer_norm("norm2", self.width)
        yield from self._mlp()

    def _mlp(self) -> Weights:
        yield from linear("mlp.fc1", self.inner, self.width)
        yield from linear("mlp.fc2", self.width, self.inner)
