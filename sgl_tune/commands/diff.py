"""`sgl-tune diff A B`: the differences between two caches or two files."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

from sgl_tune.cache.diff import NOISE, Change, Comparison, Difference, check_not_empty, compare
from sgl_tune.cache.layouts.find import keys, resolve
from sgl_tune.cache.record import Entry, parse_key
from sgl_tune.cache.scan import ScannedCache, Scanner
from sgl_tune.cli.format import CacheDirOption, Format, FormatOption, QuietOption, sink
from sgl_tune.cli.out import Output
from sgl_tune.cli.parameters import Argument, Option
from sgl_tune.cli.table import columns_of
from sgl_tune.config_files.differences import compared, lines
from sgl_tune.deployment.cache_dir import default_cache_dir
from sgl_tune.errors import Ended
from sgl_tune.units import count

_SIDES = columns_of("", "FILE OR CACHE/", ">ENTRIES")
_CHANGES = columns_of("OP/", ">BUCKET", "A", "B")
_APART = columns_of(">APART", "")


def diff(
    a: Annotated[
        str, Argument(metavar="A", help="A file, a folder, or a prefix of a key.", autocompletion=keys)
    ],
    b: Annotated[str, Argument(metavar="B", help="What to compare with A.", autocompletion=keys)],
    ignore_noise: Annotated[
        bool,
        Option(
            "--ignore-noise", help="Also exit with 0 if all differing choices were measured equally fast."
        ),
    ] = False,
    cache_dir: CacheDirOption = None,
    format: FormatOption = Format.human,
    quiet: QuietOption = False,
) -> None:
    """Compare two caches or two files: changed choices by op and bucket, missing entries, environments.

    Exits with 0 when they are equal and 1 when they differ. Order and white space do not count. If a search
    had both choices in one race, the table shows how far apart they were, and which differences are noise.

    Example: sgl-tune diff rank_tp0_pp0_dp0.json rank_tp1_pp0_dp0.json
    """
    out = Output(sink(format, quiet))
    root = cache_dir or default_cache_dir()
    if (found := compared(a, b)) is not None:
        out.result(found, human=lambda: out.line("\n".join(lines(found))), quiet=lines(found))
        raise Ended(0 if found["equal"] else 1)
    comparison = compare(_scan(a, root), _scan(b, root))
    out.result(_as_json(comparison), human=lambda: _show(out, comparison), quiet=_quiet(comparison))
    if not (comparison.is_noise if ignore_noise else comparison.is_equal):
        raise Ended(1)


def _scan(target: str, root: Path) -> list[ScannedCache]:
    caches = Scanner().scan_all(resolve(target, root))
    check_not_empty(caches, target)
    return caches


def _show(out: Output, comparison: Comparison) -> None:
    equal = sum(difference.is_equal for difference in comparison.pairs)
    if len(comparison.pairs) > 1:
        out.line(f"{count(equal, 'pair')} equal, {len(comparison.pairs) - equal} different")
    for difference in comparison.pairs:
        if len(comparison.pairs) == 1 or not difference.is_equal:
            _show_pair(out, difference)
    for name in comparison.only_a:
        out.line(f"only in A: {name}")
    for name in comparison.only_b:
        out.line(f"only in B: {name}")


def _show_pair(out: Output, difference: Difference) -> None:
    if difference.is_equal:
        out.line(f"Equal: {count(difference.same, 'entry')}, and the same environment.")
    else:
        changed = f"{len(difference.changed)} changed{_noise_text(difference)}"
        only = f"{len(difference.only_a)} only in A, {len(difference.only_b)} only in B"
        out.line(f"Different: {difference.same} the same, {changed}, {only}")
    sides = (("A", difference.a), ("B", difference.b))
    out.table(_SIDES, [(letter, side.name, len(side.entries)) for letter, side in sides])
    if difference.changed:
        known = any(change.apart is not None for change in difference.changed)
        rows = [_row(change) for change in _in_order(difference.changed)]
        columns = (*_CHANGES, *_APART) if known else _CHANGES
        out.line()
        out.table(columns, [row[: len(columns)] for row in rows])
    groups = (("A", difference.only_a), ("B", difference.only_b))
    lines = [f"only in {letter}: {text}" for letter, only in groups for text in _grouped(only)]
    for change in (*difference.environment, *difference.others):
        lines.append(f"{change.key}: {_shown(change.before)} in A, {_shown(change.after)} in B")
    for line in ("", *lines) if lines else ():
        out.line(line)


def _noise_text(difference: Difference) -> str:
    told = [change.is_noise for change in difference.changed if change.is_noise is not None]
    if not told:
        return ""
    unknown = len(difference.changed) - len(told)
    rest = f", {unknown} not known" if unknown else ""
    return f" ({sum(told)} by noise, {NOISE:.0%} at most{rest})"


def _in_order(changes: Iterable[Change]) -> list[Change]:
    def order(change: Change) -> tuple[str, int, str]:
        parts = parse_key(change.key)
        return (parts.op, parts.bucket or 0, change.key) if parts else ("", 0, change.key)

    return sorted(changes, key=order)


def _row(change: Change) -> tuple[object, ...]:
    parts = parse_key(change.key)
    a, b = Entry(change.key, change.before), Entry(change.key, change.after)
    runners = a.runner == b.runner and a.policy == b.policy
    before, after = (a.tactic, b.tactic) if runners else (change.before, change.after)
    if runners and before == after:
        before, after = a.chosen, b.chosen
    op, bucket = (parts.op, parts.bucket) if parts else (change.key, "-")
    apart = "-" if change.apart is None else f"{change.apart:.1%}"
    return op, bucket, _shown(before), _shown(after), apart, "noise" if change.is_noise else ""


def _grouped(keys: Sequence[str]) -> list[str]:
    """Return one line per op and shapes with all buckets, not 42 keys that differ in one number."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    odd = []
    for key in keys:
        parts = parse_key(key)
        if parts is None or parts.bucket is None:
            odd.append(key)
            continue
        shapes = " ".join("x".join(map(str, shape)) for shape in parts.profile[1:] if len(shape) > 1)
        groups[parts.op, shapes].append(parts.bucket)
    texts = [
        f"{op} {shapes}: buckets {' '.join(map(str, sorted(buckets)))}"
        for (op, shapes), buckets in groups.items()
    ]
    return texts + odd


def _shown(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _quiet(comparison: Comparison) -> Iterable[str]:
    for difference in comparison.pairs:
        yield from (
            change.key for change in (*difference.changed, *difference.environment, *difference.others)
        )
        yield from (*difference.only_a, *difference.only_b)
    yield from (*comparison.only_a, *comparison.only_b)


def _as_json(comparison: Comparison) -> dict[str, Any]:
    return {
        "equal": comparison.is_equal,
        "noise": comparison.is_noise,
        "pairs": [
            {
                "a": pair.a.name,
                "b": pair.b.name,
                "equal": pair.is_equal,
                "noise": pair.is_noise,
                "same": pair.same,
                "changed": [_change_json(change) for change in _in_order(pair.changed)],
                "only_a": list(pair.only_a),
                "only_b": list(pair.only_b),
                "environment": {c.key: {"a": c.before, "b": c.after} for c in pair.environment},
                "others": {c.key: {"a": c.before, "b": c.after} for c in pair.others},
            }
            for pair in comparison.pairs
        ],
        "only_a": list(comparison.only_a),
        "only_b": list(comparison.only_b),
    }


def _change_json(change: Change) -> dict[str, Any]:
    parts = parse_key(change.key)
    return {
        "op": parts.op if parts else None,
        "bucket": parts.bucket if parts else None,
        "key": change.key,
        "a": change.before,
        "b": change.after,
        "apart": change.apart,
        "noise": change.is_noise,
    }
