"""What one rank's own lines say of its memory, phase by phase.

SGLang prints GiB and writes GB.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from runtime.server.units import GIB
from sgl_tune.server_log.rank_log import Capture, RankLog, Step

_FREE = re.compile(r"avail(?:able)?[_ ](?:gpu_)?mem=(\d{1,6}\.\d+)")
_USED = re.compile(r"mem usage=(-?\d{1,6}\.\d+)")
_SECONDS = re.compile(r"(?:elapsed=|Time elapsed: )(\d{1,7}\.\d+)")
_CAPTURE = re.compile(r"Capture (.{0,40}?) ?(?:CUDA graph|cuda graph|CPU graph)s? (begin|end)\b")
_POOL = re.compile(r"#tokens: (\d{1,15}), (?:K size: (\d{1,6}\.\d+) GB, V size|KV size): (\d{1,6}\.\d+) GB")
_RESERVED = "KV Cache VA upper bound"  # addresses alone: the pool itself is made after the captures
_SIZES = re.compile(
    r"\b(max_total_num_tokens|max_running_requests|chunked_prefill_size|context_len)=(\d{1,15})\b"
)
_CAPTURING = re.compile(r"Capturing [^()]{1,40}\(((?:[a-z_]{1,20}=\d{1,9} )?)avail_mem=(\d{1,6}\.\d+) GB\)")
_HEADS = frozenset(("Init", "Memo", "Load", "Post", "Runn", "Flas", "Capt", "max_"))
_CAPTURED = {"prefill": "prefill graphs", "decode": "decode graphs", "verify": "decode graphs"}


@dataclass
class RankReader:
    source: str
    rank: str
    steps: list[Step] = field(default_factory=list)
    phase: str = "setup"
    entered: int | None = None
    baseline: int | None = None
    capture: Capture | None = None
    kv_tokens: int | None = None
    kv_bytes: int | None = None
    pool_comes_last: bool = False
    sizes: dict[str, int] = field(default_factory=dict)

    def enter(self, phase: str, text: str = "") -> None:
        self.phase, self.entered, self.capture = phase, _gib(_FREE, text), None

    def leave(self, phase: str, text: str, then: str) -> None:
        found = _SECONDS.search(text)
        seconds = float(found[1]) if found else None
        before = self.entered if self.phase == phase else None
        self.steps.append(Step(phase, _gib(_FREE, text), _gib(_USED, text), seconds, before))
        self.enter(then)

    def load(self, text: str, ends: bool = False) -> None:
        phase = "draft weights" if self.has_done("weights") else "weights"
        if not ends:
            self.enter(phase, text)
        elif self.phase != phase:  # its begin is not in the log
            free, used = _gib(_FREE, text), _gib(_USED, text)
            self.phase, self.entered = phase, free + used if free is not None and used is not None else None
        if self.baseline is None:
            self.baseline = self.entered
        if ends:
            self.leave(phase, text, "kv pool")

    def capturing(self, text: str) -> None:
        """A progress bar's line."""
        if "Capturing" in text and (found := _CAPTURING.search(text)):
            self.capture = Capture(found[1].strip(), round(float(found[2]) * GIB))

    @property
    def has_begun(self) -> bool:
        return bool(self.steps) or self.phase != "setup"

    def has_done(self, phase: str) -> bool:
        return any(step.phase == phase for step in self.steps)

    def told(self, sizes: dict[str, int]) -> RankLog:
        """Only one rank of a server prints its sizes."""
        return RankLog(
            source=self.source,
            rank=self.rank,
            phase=self.phase,
            baseline_bytes=self.baseline,
            entered_bytes=self.entered,
            steps=tuple(self.steps),
            capture=self.capture,
            kv_tokens=sizes.get("max_total_num_tokens", self.kv_tokens),
            kv_bytes=self.kv_bytes,
            pool_comes_last=self.pool_comes_last,
            sizes=sizes,
        )

    def entry(self, text: str) -> None:
        if text[:4] not in _HEADS and "#tokens: " not in text and _RESERVED not in text:
            return
        if text.startswith(("Init torch distributed begin", "Init parallel begin")):
            self.enter("communicator")
        elif text.startswith(("Init torch distributed ends", "Memory baseline taken")):
            self.leave("communicator", text, "communicator")
        elif text.startswith("Load weight begin"):
            self.load(text)
        elif text.startswith("Load weight end"):
            self.load(text, ends=True)
        elif text.startswith("Post-capture KV sizing: KV cache allocated") and (pool := _POOL.search(text)):
            self.kv_tokens, self.kv_bytes = int(pool[1]), round(float(pool[3]) * GIB)
            self.leave("kv pool", text, "after kv pool")
        elif _RESERVED in text:
            self.pool_comes_last = True
        elif "#tokens: " in text and (pool := _POOL.search(text)):
            # The draft's pool and a sparse-attention indexer come in lines of their own.
            self.kv_tokens = self.kv_tokens or int(pool[1])
            self.kv_bytes = (self.kv_bytes or 0) + round((float(pool[2] or 0) + float(pool[3])) * GIB)
        elif text.startswith("Memory pool end"):
            if not self.pool_comes_last:
                self.leave("kv pool", text, "attention backend")
        elif text.startswith("Running FlashInfer autotune"):
            self.enter("autotune", text)
        elif text.startswith("FlashInfer autotune completed"):
            self.leave("autotune", text, "after autotune")
        elif capture := _CAPTURE.match(text):
            phase = _captured(capture[1])
            if capture[2] == "begin":
                self.enter(phase, text)
            else:
                self.leave(phase, text, f"after {phase}")
        elif text.startswith("max_total_num_tokens="):
            self.sizes.update((name, int(value)) for name, value in _SIZES.findall(text))
            self.leave("ready", text, "ready")


def _captured(name: str) -> str:
    """`target prefill`, `draft decode`; releases before 0.5.12 named none, and captured only decode."""
    words = name.split()
    if words[:1] == ["draft"]:
        return "draft graphs"
    if "piecewise" in words:
        return "prefill graphs"
    return _CAPTURED.get(words[-1] if words else "decode", "decode graphs")


def _gib(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    return round(float(match[1]) * GIB) if match else None
