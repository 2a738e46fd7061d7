"""Findings in a log beside the start itself: settings that slow the server down, and failed requests."""

from __future__ import annotations

import re
from typing import NamedTuple

from sgl_tune.units import count

_CONFIG = re.compile(
    r"Config file not found at (?P<path>.{1,600}?\.json)(\. Fallback to \w+ version (?P<older>[\d.]{1,9}\d))?"
)
_TRANSFER = re.compile(
    r"(?:Prefill|Decode) (?:transfer|bootstrap|handshake) failed for request .{0,400}? with exception "
    r"(?P<why>.{1,300})"
)
_SPARED = {"Triton MoE config": "; `sgl-tune warm` tunes it"}


class Finding(NamedTuple):
    """A finding in a log. `file`: the file that SGLang looked for; "" for other kinds."""

    kind: str
    text: str
    file: str = ""

    def line(self, times: int) -> str:
        if self.kind == "kv transfer":
            return f"{count(times, 'transfer')} of KV cache failed between prefill and decode: {self.text}"
        if self.kind == "health check":
            return f"{count(times, 'health check')} failed: {self.text}"
        file = f"no tuned file {self.file.rpartition('/')[2]}: " if self.file else ""
        return f"{file}{self.text}{_SPARED.get(self.kind, '')}"

    def to_json(self, times: int) -> dict[str, object]:
        return {"kind": self.kind, "text": self.line(times), "file": self.file or None, "count": times}


def finding_of(text: str, before: str) -> Finding | None:
    if "Config file not found at" in text and (found := _CONFIG.search(text)):
        kind = "Triton FP8 config" if "W8A8" in text else "Triton MoE config"
        return Finding(kind, _instead(text, found["older"]), found["path"])
    if "failed for request" in text and (found := _TRANSFER.search(text)):
        return Finding("kv transfer", re.sub(r"\(bootstrap_room=\d+\)", "", found["why"]))
    if text.startswith("Health check failed. "):
        return Finding("health check", "the scheduler or the detokenizer gave no answer in time")
    if " NCCL WARN " in text or before == "Last error:":
        return Finding("NCCL", f"NCCL: {text.rpartition(' NCCL WARN ')[2].strip()[:300]}")
    return None


def _instead(text: str, older: str | None) -> str:
    if older:
        return f"SGLang uses the file for Triton {older}, which may be slower"
    if "down_moe=False" in text:
        return "SGLang uses the file of the first expert GEMM for the second one too, which may be slower"
    return "SGLang uses its untuned default, which may be slower"
