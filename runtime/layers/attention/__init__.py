"""Attention over the paged pool: grouped queries, latents, sparse selection; one kernel of each kind."""

from runtime.layers.attention.base import AttentionLayer, attend, attend_latent, select_tokens

__all__ = ["AttentionLayer", "attend", "attend_latent", "select_tokens"]
