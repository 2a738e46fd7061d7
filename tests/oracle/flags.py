"""Writes runtime/server/flags/v0_5_23.py from a release's wheel: its command line; says what is new in it.

python -m tests.oracle.flags 0.5.23
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runtime.server.flags.table import REQUIRED, CommandLine, flags_of
from runtime.server.flags.types import GRAPH_CONFIG, TYPES
from runtime.server.version_number import number
from tests.oracle.inside import PROJECT, run_inside
from tests.oracle.rule_changes import rule_changes
from tests.oracle.wheels import WORK, wheel_of

FOLDER = PROJECT / "runtime/server/flags"
WIDTH = 105
_UNESCAPED = re.compile(r"""(?<!\\)['"]""")
ACTIONS = {
    "StoreAction": "store", "DeprecatedAliasStoreAction": "store", "LoRAPathAction": "lora",
    "StoreTrueAction": "set", "DeprecatedStoreTrueAction": "set", "DeprecatedStoreConstAction": "set",
    "BooleanOptionalAction": "switch", "DeprecatedAction": "ignored",
}  # fmt: skip


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("releases", nargs="+")
    options.add_argument("--work", type=Path, default=WORK, help="where wheels are kept")
    asked = options.parse_args()
    for release in asked.releases:
        print(write(release, read(release, asked.work)))
        wheel = wheel_of(release, asked.work)
        print(f"  pins flashinfer {wheel.flashinfer}, transformers {wheel.transformers}")
        before = release_before(release)
        if before is not None:
            print(f"  since {before}:")
            print(*(f"    {line}" for line in news(flags_of(before), flags_of(release))), sep="\n")
            print(f"    {rules(before, release, asked.work)}")


def release_before(release: str) -> str | None:
    older = [name for name in tables() if number(name) < number(release)]
    return max(older, key=number, default=None)


def rules(before: str, release: str, work: Path) -> str:
    """Keeps the differences of SGLang's own rules in a file, and says which files have any."""
    changes = rule_changes(wheel_of(before, work).folder, wheel_of(release, work).folder)
    kept = work / f"{release}.diff"
    kept.write_text("".join(changes.values()))
    return f"rules: {kept} ({len(kept.read_text().splitlines())} lines of {len(changes)} files)"


def news(old: CommandLine, new: CommandLine) -> Iterator[str]:
    both = set(old.by_name) & set(new.by_name)
    kept = sorted(set(new.defaults) & set(old.defaults))
    facts = {
        "new flags": sorted(set(new.by_name) - both),
        "gone": sorted(set(old.by_name) - both),
        "other defaults": [name for name in kept if old.defaults[name] != new.defaults[name]],
        "deprecated": [
            name for name in sorted(both) if new.by_name[name].deprecated > old.by_name[name].deprecated
        ],
    }
    for what, names in facts.items():
        if names:
            yield f"{what}: {' '.join(names)}"


def tables() -> list[str]:
    return [path.stem.removeprefix("v").replace("_", ".") for path in FOLDER.glob("v*.py")]


def write(release: str, said: dict[str, Any]) -> str:
    """A post release that speaks as the one it follows needs no module of its own."""
    path, text = module_of(release), module_text(release, said)
    followed = module_of(".".join(release.split(".")[:3]))
    if followed != path and followed.is_file() and _rows_of(followed.read_text()) == _rows_of(text):
        return f"{release}: as {followed.relative_to(PROJECT)}"
    path.write_text(text)
    return f"{path.relative_to(PROJECT)}: {len(said['actions'])} flags"


def module_of(release: str) -> Path:
    return FOLDER / f"v{release.replace('.', '_')}.py"


def _rows_of(text: str) -> str:
    return text.partition("\n")[2]


def read(release: str, work: Path) -> dict[str, Any]:
    """The command line does not depend on the GPU."""
    wheel = wheel_of(release, work)
    return next(run_inside("read_flags", wheel, "H200", work, [], deadline=300))


def module_text(release: str, said: dict[str, Any]) -> str:
    rows = [row(action, said["renamed"]) for action in said["actions"]]
    only = only_fields(said["fields"], rows)
    keys = {phase: tuple(names) for phase, names in said["graph_keys"].items()}
    parts = [
        f'"""The command line of SGLang {release}: written by `python -m tests.oracle.flags {release}`."""\n',
        "# fmt: off\n# ruff: noqa\n",
        f"SERVE_TAKES_MODEL = {said['serve_takes_model']}",
        f"CONFIG_DICTS_ARE_JSON = {said['config_dicts_are_json']}",
        f"CONFIG_KEYS_ARE_NAMES = {said['config_keys_are_names']}",
        wrapped(f"GRAPH_KEYS: dict[str, tuple[str, ...]] = {keys!r}"),
        wrapped(f"ONLY_FIELDS: dict[str, object] = {only!r}"),
        "FLAGS: tuple[tuple, ...] = (",
    ]
    return "\n".join([*parts, *map(row_text, rows), ")", ""])


def row(action: dict[str, Any], renamed: dict[str, str]) -> tuple[Any, ...]:
    """As `table._flag` takes it: names, field, type, default, and what is unusual."""
    kind = ACTIONS.get(action["action"])
    if kind is None:
        raise SystemExit(f"{action['names'][0]}: {action['action']} is an action nobody knows: see ACTIONS")
    if kind == "ignored" and action["refuses"]:
        kind = "refused"
    valued = action["nargs"] != 0
    type_name = (action["type"] or "str") if valued else kind
    if valued and type_name not in TYPES and type_name != GRAPH_CONFIG:
        print(f"{action['names'][0]}: {type_name} is a type nobody knows; any text is taken, see types.py")
    more = {
        "action": kind if valued and kind != "store" else None,
        "nargs": action["nargs"] if valued else None,
        "choices": " ".join(map(str, action["choices"])) if action["choices"] else None,
        "const": None if kind == "set" and action["const"] is True else action["const"],
        "instead": action["instead"],
        "refusal": action["refuses"],
    }
    unusual = {name: value for name, value in more.items() if value is not None}
    default = None if action["default"] == "==SUPPRESS==" else action["default"]
    field = renamed.get(action["dest"], action["dest"])
    named = (" ".join(action["names"]), field, type_name, REQUIRED if action["required"] else default)
    return (*named, unusual) if unusual else named


def only_fields(fields: dict[str, Any], rows: list[tuple[Any, ...]]) -> dict[str, Any]:
    """Server arguments that no flag sets."""
    flagged = {field for _, field, *_ in rows}
    return {name: default for name, default in fields.items() if name not in flagged}


def row_text(row: tuple[Any, ...]) -> str:
    return textwrap.indent(wrapped(repr(row)), "    ") + ","


def wrapped(text: str) -> str:
    return "\n".join(_broken(text)) if len(text) > WIDTH else text


def _broken(text: str) -> Iterator[str]:
    """At spaces, which inside of a string closes it and opens it again on the next line."""
    quote, line = "", ""
    for word in text.split(" "):
        if line and len(line) + len(word) + 4 > WIDTH - 4:
            yield f"{line} {quote}" if quote else line
            line = f"    {quote}{word}"
        else:
            line = f"{line} {word}" if line else word
        for letter in _UNESCAPED.findall(word):
            if quote in ("", letter):
                quote = "" if quote else letter
    yield line


if __name__ == "__main__":
    main()
