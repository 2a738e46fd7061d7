"""The size of FlashInfer's all-to-all workspace and the offsets of its regions. Numbers only."""

from dataclasses import dataclass

from runtime.server.config import RuntimeConfig

# A dispatcher is built before the limit of requests is known. This is the largest limit SGLang resolves to.
REQUEST_LIMIT = 4096
_ALIGNMENT = 128
_MAX_TOP_K = 22  # experts per token that FlashInfer's bookkeeping has room for


class WorkspaceOverflow(RuntimeError):
    """A batch has more tokens than the workspace holds; raised before a kernel writes past its end."""


@dataclass(frozen=True, slots=True)
class A2AWorkspace:
    """The workspace of one rank: room for the rows it receives, and for the results of all ranks."""

    ep_size: int
    max_tokens: int  # a rank
    hidden_size: int
    top_k: int
    element_bytes: int = 2

    @property
    def bookkeeping_bytes(self) -> int:
        """Counters, completion flags, and for each token its target ranks and its slots on them."""
        counters = _align(8 + 8 * self.ep_size)
        flags = 2 * _align(4 * self.ep_size)
        return counters + flags + 2 * _align(self.max_tokens * _MAX_TOP_K * 4)

    @property
    def dispatch_bytes(self) -> int:
        """Rows with an id and a weight for each of their experts. The size is that of plain rows: quantised
        ones need less, but a dispatch may fall back to plain rows at any time."""
        payload = self.hidden_size * self.element_bytes + 8 * self.top_k
        return _align(self.ep_size * self.max_tokens * payload)

    @property
    def combine_bytes(self) -> int:
        return _align(self.ep_size * self.max_tokens * self.hidden_size * self.element_bytes)

    @property
    def total_bytes(self) -> int:
        return _align(self.bookkeeping_bytes) + self.dispatch_bytes + self.combine_bytes

    def check(self, tokens: int) -> None:
        if tokens > self.max_tokens:
            raise WorkspaceOverflow(
                f"{tokens} tokens a rank do not fit an all-to-all workspace made for {self.max_tokens}: "
                "raise SGLANG_FLASHINFER_NUM_MAX_DISPATCH_TOKENS_PER_RANK if it is set, else "
                "--chunked-prefill-size or --max-running-requests, to cover the largest batch"
            )


def max_dispatch_tokens(runtime: RuntimeConfig) -> int:
    """Return the longer of a prefill chunk and a full decode batch, unless the configuration sets one."""
    if runtime.kernels.a2a_max_tokens is not None:
        return runtime.kernels.a2a_max_tokens
    requests = runtime.max_running_requests or REQUEST_LIMIT
    return max(runtime.prefill_tokens, requests * runtime.width)


def _align(value: int) -> int:
    return -(-value // _ALIGNMENT) * _ALIGNMENT
