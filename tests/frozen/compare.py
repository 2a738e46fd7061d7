"""Compares a record with a frozen answer: the same fields under the same names, and each difference."""

from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from runtime.record.record import Record
from runtime.record.settled import Gate, Settled
from tests.frozen.questions import Question

ARGUMENTS = (
    *("quantization", "page_size", "moe_runner_backend", "moe_a2a_backend", "ep_size"),
    *("chunked_prefill_size", "max_running_requests", "disaggregation_mode"),
)
SETTLED = (
    *("config_class", "dtype", "kv_cache_dtype", "context_length", "attn_dp_size"),
    *("decode_graphs", "prefill_graphs"),
)
SPECULATIVE = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
FIELDS = frozenset({
    *ARGUMENTS, *SETTLED, "attention_backend", "sparse_kernels", "mem_fraction_static", "speculative",
    "dummy_batch_rows", "tunes", "key", "draft",
})  # fmt: skip
OWN_PARSER = "its own parser"
TEXT = 300  # as long as a frozen refusal is


@dataclass(frozen=True)
class Difference:
    field: str
    frozen: Any
    asked: Any


@dataclass(frozen=True)
class Verdict:
    """The result: equal, different, refused equally, broken, or not asked (the wheels could not be)."""

    how: str
    fields: int = 0
    differences: tuple[Difference, ...] = ()


def verdict(question: Question, record: Record) -> Verdict:
    refused = refusal(record)
    if record.ending.how == "broken":
        return Verdict("broken", differences=(Difference("ending", _frozen(question), record.ending.text),))
    if refused is not None and refused in (question.refused, question.unanswered):
        return Verdict("refused equally")
    if question.unanswered is not None:
        return Verdict("not asked then")
    if question.refused is not None or refused is not None:
        return Verdict(
            "different", differences=(Difference("ending", _frozen(question), refused or "started"),)
        )
    then, now = question.answer or {}, fields(record)
    apart = tuple(Difference(name, then[name], now[name]) for name in then if then[name] != now[name])
    return Verdict("different" if apart else "equal", len(then), apart)


def fields(record: Record) -> dict[str, Any]:
    """Return the fields that the wheels were asked for, from a record that stopped at the gates."""
    asked, settled = record.arguments, record.settled
    assert settled is not None, record.ending
    return {
        **{name: asked[name] for name in ARGUMENTS},
        **{name: _plain(getattr(settled, name)) for name in SETTLED},
        "attention_backend": _attention(asked),
        "sparse_kernels": [
            asked.get(f"dsa_{one}_backend") or asked.get(f"nsa_{one}_backend")
            for one in ("prefill", "decode")
        ],
        "mem_fraction_static": round(asked["mem_fraction_static"], 3),
        "speculative": [asked[name] for name in SPECULATIVE] if asked["speculative_algorithm"] else None,
        "dummy_batch_rows": _rows(asked, settled),
        **_gate(settled.gate),
        "draft": _gate(settled.draft) if settled.draft else None,
    }


def refusal(record: Record) -> str | None:
    """Return a refusal in the form of a frozen one."""
    ending = record.ending
    if ending.how not in ("refused", "died"):
        return None
    return OWN_PARSER if ending.type == "SystemExit" else f"{ending.type}: {ending.text}"[:TEXT]


def _frozen(question: Question) -> str:
    return question.refused or question.unanswered or "started"


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _attention(asked: dict[str, Any]) -> str:
    phases, common = ("prefill", "decode"), asked["attention_backend"]
    both = [asked.get(f"{phase}_attention_backend") or common for phase in phases]
    return str(both[0]) if both[0] == both[1] else "/".join(map(str, both))


def _rows(asked: dict[str, Any], settled: Settled) -> int:
    drafted = asked["speculative_num_draft_tokens"] if asked["speculative_algorithm"] else None
    return settled.most_requests * (drafted or 1)


def _gate(gate: Gate) -> dict[str, Any]:
    return {"tunes": gate.tunes, "key": PurePath(gate.file).parent.name}
