"""The memory of one rank in each phase of its start, from its own lines. Where SGLang prints GB, it means
GiB."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from runtime.server.units import GIB
from sgl_tune.server_log.marks import GRAPHS, Edge, Mark, graph_phase

_FREE = re.compile(r"avail(?:able)?[_ ](?:gpu_)?mem=(\d{1,6}\.\d+)")
_USED = re.compile(r"mem usage=(-?\d{1,6}\.\d+)")
_SECONDS = re.compile(r"(?:elapsed=|Time elapsed: )(\d{1,7}\.\d+)")
_POOL = re.compile(r"#tokens: (\d{1,15}), (?:K size: (\d{1,6}\.\d+) GB, V size|KV size): (\d{1,6}\.\d+) GB")
_SIZES = re.compile(
    r"\b(max_total_num_tokens|max_running_requests|chunked_prefill_size|context_len)=(\d{1,15})\b"
)
_CAPTURING = re.compile(r"Capturing [^()]{1,40}\(((?:[a-z_]{1,20}=\d{1,9} )?)avail_mem=(\d{1,6}\.\d+) GB\)")
# The names of phases in a prediction of memory, and the state of a rank after each.
_NAMES = {"tactics": "autotune", "scheduler": "ready"}
_OF_A_DRAFT = {"communicator": "draft setup", "weights": "draft weights"}
_NEXT = {"communicator": "weights", "weights": "kv pool", "draft weights": "kv pool", "kv pool":
         "attention backend", "ready": "ready"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    """A phase that ended. `before_bytes`: free when it began."""

    phase: str
    free_bytes: int | None = None
    used_bytes: int | None = None
    seconds: float | None = None
    before_bytes: int | None = None


@dataclass(slots=True)
class RankLog:
    """One rank's memory in a log. `source`: its pod, or "" if there is one. `phase`: where its log ends."""

    source: str = ""
    rank: str = ""
    phase: str = "setup"
    baseline_bytes: int | None = None  # free bytes before the weights
    entered_bytes: int | None = None  # free bytes when `phase` began
    least_free_bytes: int | None = None  # the least in any line
    steps: list[Step] = field(default_factory=list)
    capture: tuple[str, int] | None = None  # the shape that was captured last, and the free bytes then
    kv_tokens: int | None = None
    kv_bytes: int | None = None
    pool_comes_last: bool = False  # the pool was sized after the captures
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return " of ".join(filter(None, (self.rank, self.source))) or "the server"

    @property
    def last_phase(self) -> str:
        return "after the scheduler was ready" if self.phase == "ready" else self.phase

    def step(self, phase: str) -> Step | None:
        return next((step for step in self.steps if step.phase == phase), None)

    def free_after(self, phase: str) -> int | None:
        step = self.step(phase)
        return step.free_bytes if step else None

    def phase_of(self, mark: Mark, said: Mapping[str, str]) -> str:
        """Return the phase of a line. The second model to be loaded is the draft."""
        if mark.phase == "graphs":
            return graph_phase(said["what"])
        if mark.phase in _OF_A_DRAFT and self.step("weights"):
            return _OF_A_DRAFT[mark.phase]
        return mark.phase

    def take(self, mark: Mark, phase: str, text: str) -> None:
        """Read the memory that a line of this rank shows."""
        phase = _NAMES.get(phase, phase)
        self.see_free(_gib(_FREE, text))
        if mark.fact in ("pool", "last pool") and (pool := _POOL.search(text)):
            tokens, size = int(pool[1]), round((float(pool[2] or 0) + float(pool[3])) * GIB)
            # The pools of a draft and of a sparse-attention indexer print their own lines.
            before = (None, 0) if mark.fact == "last pool" else (self.kv_tokens, self.kv_bytes or 0)
            self.kv_tokens, self.kv_bytes = before[0] or tokens, before[1] + size
        if mark.phase == "weights":
            self._load(phase, text, mark.edge)
        elif mark.edge is Edge.opens:
            self._enter(phase, text)
        elif mark.edge is Edge.closes or mark.fact in ("scheduler", "last pool"):
            self.sizes = {name: int(value) for name, value in _SIZES.findall(text)} or self.sizes
            self._leave(phase, text)
        elif mark.fact == "pool ends" and not self.pool_comes_last:
            self._leave(phase, text)
        if mark.fact == "pool comes last":
            self.pool_comes_last = True

    def see_bar(self, text: str) -> None:
        """Read a progress bar's line."""
        if found := _CAPTURING.search(text):
            self.capture = found[1].strip(), round(float(found[2]) * GIB)
            self.see_free(self.capture[1])

    def see_free(self, free: int | None) -> None:
        if free is not None and (self.least_free_bytes is None or free < self.least_free_bytes):
            self.least_free_bytes = free

    def _enter(self, phase: str, text: str = "") -> None:
        self.phase, self.entered_bytes, self.capture = phase, _gib(_FREE, text), None

    def _leave(self, phase: str, text: str) -> None:
        found = _SECONDS.search(text)
        before = self.entered_bytes if self.phase == phase else None
        used = _gib(_USED, text)
        if phase == "kv pool":
            if self.steps and self.steps[-1].phase == phase:
                self.steps.pop()  # a second pool beside the first
            others = sum(step.used_bytes or 0 for step in self.steps if step.phase == phase)
            used = self.kv_bytes - others if self.kv_bytes else None
        step = Step(phase, _gib(_FREE, text), used, float(found[1]) if found else None, before)
        self.steps.append(step)
        after = _NEXT.get(phase, f"after {phase}" if phase in (*GRAPHS, "autotune") else phase)
        self._enter("after kv pool" if self.pool_comes_last and phase == "kv pool" else after)

    def _load(self, phase: str, text: str, edge: Edge) -> None:
        if edge is Edge.opens:
            self._enter(phase, text)
        elif self.phase != phase:  # the phase's first line is missing
            free, used = _gib(_FREE, text), _gib(_USED, text)
            self.phase = phase
            self.entered_bytes = free + used if free is not None and used is not None else None
        if self.baseline_bytes is None:
            self.baseline_bytes = self.entered_bytes
        if edge is Edge.closes:
            self._leave(phase, text)


def _gib(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    return round(float(match[1]) * GIB) if match else None
