"""Random command lines of a release: right ones, and ones with one mistake. Made from its table of flags."""

from __future__ import annotations

import random
from collections.abc import Callable

from runtime.server.flags import CommandLine, Flag

TEXTS = ["x", "auto", "a b", "-", "None", "", "/models/x", "1", "=", "a=b"]
VALUES: dict[str, list[str]] = {
    "int": ["0", "1", "8", "64", "-1", " 7", "1_000", "+3"],
    "float": ["0.5", "1", "-0.25", "1e-3", "inf", ".5"],
    "human_readable_int": ["0", "-1", "4096", "4k", "4Ki", "1.5M", "2Gi", "0.3k", " 8 "],
    "loads": ["{}", '{"a": 1}', "[1]", "null", "3"],
    "json_list_type": ["[1, 2]", "[]", '["a"]', "{}"],
    "nullable_str": ["None", "", "x", "none"],
    "parse_cuda_graph_config_arg": ["{}", '{"decode": {"max_bs": 8}}', '{"prefill": {"bs": [4]}}'],
}  # fmt: skip
WRONG: dict[str, list[str]] = {
    "int": ["x", "1.5", "8k", "", "0x10", "1e3"],
    "float": ["x", "", "1,5", "0.5.1"],
    "human_readable_int": ["x", "1.5", "4K", "1.5Ki", "4 k", "4ki", ""],
    "loads": ["{", "x", "", "'a'"],
    "json_list_type": ["[", "x", "", "NaN"],
    "parse_cuda_graph_backend_arg": ["tc_piecewise", "x"],
    "parse_cuda_graph_config_arg": ["x", "[]", '{"x": {}}', '{"decode": 1}', '{"decode": {"x": 1}}'],
}  # fmt: skip
Line = list[str]


def random_lines(command_line: CommandLine, seed: int, count: int) -> list[Line]:
    """Every second one with a mistake."""
    chance = random.Random(f"{command_line.release} {seed}")
    return [_line(chance, command_line, mistaken=i % 2 == 1) for i in range(count)]


def _line(chance: random.Random, command_line: CommandLine, mistaken: bool) -> Line:
    flags = chance.sample(command_line.flags, chance.randrange(1, 6))
    parts = [["--model-path", "org/model"], *(right_part(chance, flag) for flag in flags)]
    if mistaken:
        at = chance.randrange(1, len(parts))
        parts[at] = chance.choice(MISTAKES)(chance, flags[at - 1], parts[at])
    chance.shuffle(parts)
    return [word for part in parts for word in part]


def right_part(chance: random.Random, flag: Flag) -> Line:
    name = chance.choice(flag.names)
    if not flag.takes_value:
        return [name]
    values = [_value(chance, flag) for _ in range(_arity(chance, flag))]
    if len(values) == 1 and chance.random() < 0.3:
        return [f"{name}={values[0]}"]
    return [name, *values]


def _arity(chance: random.Random, flag: Flag) -> int:
    least, most = {None: (1, 1), "?": (0, 1), "*": (0, 3), "+": (1, 3)}[flag.nargs]
    return chance.randint(least, most)


def _value(chance: random.Random, flag: Flag) -> str:
    if flag.choices:
        return str(chance.choice(flag.choices))
    return chance.choice(VALUES.get(flag.type, TEXTS))


def _misspelt(chance: random.Random, flag: Flag, part: Line) -> Line:
    """A letter swapped, dropped, doubled or replaced."""
    name, equals, value = part[0].partition("=")
    at = chance.randrange(2, len(name))
    slips = [name[:at] + name[at + 1 :], name[:at] + name[at] + name[at:], name[:at] + "q" + name[at + 1 :]]
    if at + 1 < len(name):
        slips.append(name[:at] + name[at + 1] + name[at] + name[at + 2 :])
    return [chance.choice(slips) + equals + value, *part[1:]]


def _cut(chance: random.Random, flag: Flag, part: Line) -> Line:
    """An abbreviation: unique, ambiguous, or another flag's whole name."""
    name, equals, value = part[0].partition("=")
    return [name[: chance.randrange(3, len(name) + 1)] + equals + value, *part[1:]]


def _wrong_value(chance: random.Random, flag: Flag, part: Line) -> Line:
    if not flag.takes_value:
        return [f"{flag.name}={chance.choice(['true', '', '1'])}"]
    wrong = ["no-such-choice", ""] if flag.choices else WRONG.get(flag.type, TEXTS)
    return [flag.name, chance.choice(wrong)]


def _wrong_count(chance: random.Random, flag: Flag, part: Line) -> Line:
    return chance.choice([[part[0], *part[1:], "one-more"], [flag.name]])


def _stray(chance: random.Random, flag: Flag, part: Line) -> Line:
    return [*part, chance.choice(["stray", "--", "-x", "-1", "--no-" + flag.name[2:], "-" + flag.name[2:]])]


def _twice(chance: random.Random, flag: Flag, part: Line) -> Line:
    return [*part, *right_part(chance, flag)]


MISTAKES: list[Callable[[random.Random, Flag, Line], Line]] = [
    _misspelt, _misspelt, _cut, _cut, _wrong_value, _wrong_value, _wrong_count, _stray, _twice,
]  # fmt: skip
