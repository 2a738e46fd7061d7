"""What a server made of a command, from the record of its start: each value, with SGLang's own messages."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from runtime.record.record import Record
from runtime.sglang.flag_classes import MODELS
from runtime.sglang.inside.words import DRAWN, OURS
from sgl_tune.asking.question import value_of
from sgl_tune.recorded.caches import files_of
from sgl_tune.units import count

_APART = re.compile(r"[-_\s]+")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_WHOLE = "its model was not built: the KV cache's size, tuner keys, modules and memory were not asked"


@dataclass(frozen=True, slots=True)
class Argument:
    """A server's argument. `given`: the command's value. `default`: SGLang's, if the value differs. `why`:
    the lines that SGLang logged about it."""

    name: str
    value: Any
    is_given: bool
    given: Any
    default: Any
    is_default: bool
    why: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "value": self.value,
            "given": self.given if self.is_given else None,
            "default": self.value if self.is_default else self.default,
            "why": list(self.why),
        }


@dataclass(frozen=True)
class Account:
    """What a server made of a command. `typed`: the flags as typed; in the record a folder may replace a
    model."""

    record: Record
    typed: tuple[str, ...]

    @property
    def where(self) -> str:
        versions, gpu = self.record.asked.versions, self.record.asked.gpu
        return f"SGLang {versions.get('sglang')}, FlashInfer {versions.get('flashinfer-python')}, {gpu}"

    @property
    def refused(self) -> str | None:
        """Return SGLang's own words if it refuses the command, else None."""
        ending = self.record.ending
        return (ending.text or "").strip()[-1000:] if ending.how == "refused" else None

    @property
    def died(self) -> str | None:
        ending = self.record.ending
        if ending.how in ("ready", "stopped", "refused"):
            return None
        text = (ending.text or "").strip().splitlines() or [""]
        where = ending.phase or "its beginning"
        return f"its start ends in {where}: {ending.type or ending.how} {text[0][:600]}"

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        resolved = self.record.resolved
        names = [name for name in resolved.arguments if name not in (*OURS, *DRAWN)]
        return tuple(self._argument(name) for name in names)

    @cached_property
    def files(self) -> tuple[str, ...]:
        """Return the files of all ranks, or of this rank alone if SGLang did not name the others."""
        settled = self.record.settled
        return files_of([self.record], is_draft=False) or ((settled.gate.file,) if settled else ())

    @cached_property
    def draft_files(self) -> tuple[str, ...]:
        settled = self.record.settled
        own = (settled.draft.file,) if settled and settled.draft else ()
        return files_of([self.record], is_draft=True) or own

    @cached_property
    def settled(self) -> dict[str, Any]:
        """Return what the server resolves beside its arguments; empty if its start ended before."""
        settled, sizes = self.record.settled, self.record.sizes
        found = {} if settled is None else asdict(settled)
        gate, draft = found.pop("gate", None), found.pop("draft", None)
        if gate is not None:
            found |= {"tunes": gate["tunes"], "key": _key_of(gate["file"])}
        if draft is not None:
            found |= {"draft_tunes": draft["tunes"], "draft_key": _key_of(draft["file"])}
        return found if sizes is None else {**found, **asdict(sizes)}

    @property
    def said(self) -> tuple[str, ...]:
        """Return log lines from before the model is built that belong to no shown argument."""
        told = {line for one in self.arguments if not one.is_default for line in one.why}
        return tuple(line for line in self._lines if line not in told)

    @property
    def not_asked(self) -> tuple[str, ...]:
        left = f"{', '.join(OURS)}: a recorded start sets these itself"
        return (*((_WHOLE,) if self.record.ending.how == "stopped" else ()), left, *self.record.lacks)

    @property
    def says(self) -> str:
        if self.refused is not None:
            return f"SGLang refuses this command: {self.refused.splitlines()[-1] if self.refused else ''}"
        if not self.settled:
            return self.died or "its start did not settle anything"
        if not self.settled["tunes"]:
            return f"SGLang's gate is closed: this server tunes nothing and loads no tactics{self.doubt}"
        key = self.settled["key"]
        return f"SGLang's gate is open: this server reads tactics under the key {key}{self.doubt}"

    @property
    def doubt(self) -> str:
        """Return what makes the verdict uncertain, as the end of its line, or ""."""
        first, *others = [f"{one.name}: {one.why}" for one in self.record.inexact] or [""]
        more = f" and {count(len(others), 'other reason')}" if others else ""
        return f"; not exact, because of {first}{more}" if first else ""

    @property
    def exit_code(self) -> int:
        return 2 if self.refused is not None else 0 if self.settled else 1

    def to_json(self) -> dict[str, Any]:
        record = self.record
        return {
            "server": {"python": record.asked.python, "versions": record.asked.versions},
            "deployment": {"argv": list(self.typed), "gpu": record.asked.gpu},
            "verdict": self.says,
            "refused": self.refused,
            "died": self.died,
            "arguments": [one.to_json() for one in self.arguments],
            "settled": self.settled,
            "files": list(self.files),
            "draft_files": list(self.draft_files),
            "said": list(self.said),
            "not_asked": list(self.not_asked),
            "exact": record.exact,
            "inexact": [asdict(one) for one in record.inexact],
        }

    def _argument(self, name: str) -> Argument:
        resolved = self.record.resolved
        is_default = name not in resolved.defaults
        value, default = self._typed(resolved.arguments[name]), self._typed(resolved.defaults.get(name))
        given = self._typed(resolved.given.get(name))
        why = tuple(line for line in self._lines if _names(line, name))
        return Argument(name, value, name in resolved.given, given, default, is_default, why)

    def _typed(self, value: Any) -> Any:
        """Return an argument's value, with models named as the user named them."""
        if isinstance(value, str):
            return self._models.get(value, value)
        if isinstance(value, list):
            return [self._typed(one) for one in value]
        if isinstance(value, Mapping):
            return {name: self._typed(one) for name, one in value.items()}
        return value

    @cached_property
    def _models(self) -> Mapping[str, str]:
        """Return the models as typed, by the folders that stood for them."""
        main, found = frozenset({"--model-path", "--model"}), {}
        for flags in (main, MODELS - main):
            folder, name = (
                value_of(self.record.asked.argv, sorted(flags)),
                value_of(self.typed, sorted(flags)),
            )
            if folder and name:
                found[folder] = name
        return found

    @cached_property
    def _lines(self) -> tuple[str, ...]:
        """Return the log's lines, without those about values that sgl-tune itself sets."""
        lines = (_ESCAPES.sub("", one.text).strip() for one in self.record.said if not one.phase)
        foreign = (line for line in lines if line and not any(_names(line, name) for name in OURS))
        return tuple(dict.fromkeys(line for line in foreign if not line.startswith("server_args=")))


def _names(line: str, argument: str) -> bool:
    """Whether a line names an argument: as a flag, a Python name or words; if it is one word, as a flag."""
    plain = _APART.sub(" ", argument) if "_" in argument else f"--{argument}"
    text = _APART.sub(" ", line.lower()) if "_" in argument else line
    return re.search(rf"(?<!\w){re.escape(plain)}(?!\w)", text) is not None


def _key_of(file: str) -> str:
    return PurePosixPath(file).parent.name
