"""Values that have broken parsers before: of every type, size and depth, and text that is no text."""

from __future__ import annotations

from typing import Any

DIGITS_4000 = int("9" * 4000)
SCALARS: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 2, 3, -1, 7, 2**31, 2**63, 10**9, 10**12, 10**30, DIGITS_4000),
    *(0.0, -0.0, 0.5, 1.5, 1e9, 1e300, 1e-300, float("nan"), float("inf"), float("-inf")),
    *("", " ", "0", "1", "-1", "²", "٣", "1e5", "null", "auto", "none", "F", "é", "\0", "a\0b", "\n", "\r\n"),
    *("\ud800", "\udcff", "x" * 300, "y" * 100_000, "../../x", "/dev/null", ".", "..", "a/b", "%s", "{}"),
    *("9" * 30, "9" * 4300, "sm90", "sm9999", "fp8", "modelopt", "moe", "sparse", "1.2.3", "\x1b[31m"),
)
CONTAINERS: tuple[Any, ...] = (
    [],
    {},
    [[]],
    [None],
    [1, 2],
    {"": 1},
    {"a": {"b": []}},
    [0] * 1000,
    [[1]] * 50,
)
# JSON that no encoder writes; put in as text.
RAW: tuple[bytes, ...] = (
    *(b"NaN", b"-Infinity", b"1e999", b"-0", b"01", b"1.", b"'x'", b"tru", b"", b",", b"}", b"]"),
    *(b'"\\ud800"', b'"\\x"', b'"\xff\xfe"', b'"\xed\xa0\x80"', b'"\0"', b'"', b"//", b"0x10"),
    *(b"9" * 4300, b"9" * 4301, b"-" + b"9" * 20_000, b"1" + b"0" * 400, b"1e400", b"0." + b"3" * 5000),
    *(b"[" * 900 + b"]" * 900, b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000),
    *(b'{"a":' * 900 + b"1" + b"}" * 900, b'{"a":' * 50_000 + b"1" + b"}" * 50_000),
)
BYTES: tuple[bytes, ...] = (
    *(b"\0", b"\xff", b"\xef\xbb\xbf", b"\xff\xfe", "é".encode(), b"\xed\xa0\x80", b"\r", b"\r\n", b"\n\n"),
    *(b"{", b"}", b"[", b"]", b'"', b"'", b",", b":", b"\\", b"=", b"#", b"--", b"\x1b[2J", b"9" * 4301),
    *("²".encode(), "٣".encode(), "\u2028".encode(), b"\x00" * 300, b"A" * 70_000, b" " * 5000),
)
# As a kernel hands over arguments: no NUL, and bytes that are no UTF-8 as lone surrogates.
WORDS: tuple[str, ...] = (
    *("0", "1", "2", "3", "7", "8", "64", "-1", "-0", "1.5", "nan", "inf", "-inf", "1e9", "1e400", "²", "٣"),
    *("1000000000", "1000000000000", "9" * 30, "9" * 4000, "9" * 4301, "0.5", "1_000", "0x10", "+1", " 1"),
    *(
        "",
        " ",
        "-",
        "--",
        "-x",
        "=",
        "a=b",
        "--tp",
        "null",
        "None",
        "auto",
        "none",
        "x" * 5000,
        "é",
        "\udcff",
    ),
    *(
        "\n",
        "\t",
        "'",
        '"',
        "\\",
        "a\\",
        "$(id)",
        "a;b",
        ".",
        "..",
        "../x",
        "x/y",
        "%d",
        "{}",
        "\x1b[31m",
        "*",
    ),
    *("sm90", "sm100", "sm9", "sm", "sm²", "sm" + "9" * 4301, "h200", "cpu", "json", "quiet", "1.5G", "3K"),
    *("0.5.23", "0.5.12", "0.5.²", "99.99.99", "0." + "9" * 4301 + ".1", "demo-moe", "Qwen/Qwen3-30B-A3B"),
)
TOML: tuple[bytes, ...] = (
    *(b"0", b"-1", b"1", b"8", b"1000000000", b"1000000000000", b"9" * 30, b"9" * 4301, b"0x" + b"f" * 5000),
    *(
        b"1.5",
        b"nan",
        b"-inf",
        b"1e400",
        b"true",
        b"false",
        b'""',
        b'"x"',
        b'"\\u0000"',
        b'"a\\u0000b"',
        b"[]",
    ),
    *(b"{}", b"[1]", b'["x"]', b"[[]]", b"1979-05-27", b"07:32:00", b"1979-05-27T07:32:00Z", b"''", b"'''x"),
    *(b"[" * 900 + b"]" * 900, b"[" * 50_000, b"[" * 50_000 + b"]" * 50_000, b"{a=" * 20_000 + b"1"),
    *(
        b"{a=" * 400 + b"1" + b"}" * 400,
        b'"' + b"z" * 100_000 + b'"',
        b'"\xff"',
        b'"\\ud800"',
        b'"\\U0010ffff"',
    ),
)
