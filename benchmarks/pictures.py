"""The README's pictures: commands run here, on a terminal, as SVG.

PYTHONPATH=. python benchmarks/pictures.py
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from benchmarks.terminal import Frame, Style, recorded

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
COLUMNS = 96
_CHARACTER, _LINE, _PAD, _SIZE = 7.8, 17.0, 14.0, 13
_TYPING_SECONDS, _SHORTEST_SECONDS, _HOLD_SECONDS, _MOST_FRAMES = 1.0, 0.4, 5.0, 40
_INK = {
    None: "#d8dee9", "black": "#4c566a", "red": "#e06c75", "green": "#98c379", "yellow": "#e5c07b",
    "blue": "#61afef", "magenta": "#c678dd", "cyan": "#56b6c2",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Picture:
    name: str
    commands: tuple[str, ...]
    moves: bool


PICTURES = (
    Picture("warm", ("sgl-tune warm --tp 8 --dp 8", "sgl-tune verify --tp 8 --dp 8"), moves=True),
    Picture(
        "mem-report",
        (
            "sgl-tune mem-report --server core --model zai-org/GLM-5.1-FP8 --tp 8 --dp 8"
            " --enable-dp-attention --mem-fraction-static 0.9 --gpu b200 --what-if lm-head-in-autotune",
        ),
        moves=False,
    ),
)


def main() -> None:
    wanted = sys.argv[1:] or [picture.name for picture in PICTURES]
    FOLDER.mkdir(exist_ok=True)
    for picture in PICTURES:
        if picture.name in wanted:
            path = FOLDER / f"{picture.name}.svg"
            path.write_text(drawn(_film(picture), picture.moves))
            print(path)


def _film(picture: Picture) -> list[Frame]:
    """The commands one after the other, each below what was there."""
    frames: list[Frame] = []
    second, above = 0.0, ()
    folder = tempfile.mkdtemp(prefix="sgl-tune-picture-")
    try:
        for command in picture.commands:
            words = command.split()
            program = str(Path(sys.executable).with_name(words[0]))
            prompt = _prompt(command)
            frames.append(Frame(second, (*above, *prompt)))
            second += _TYPING_SECONDS
            seen = recorded([program, *words[1:], *_OPTIONS.get(words[1], ())], COLUMNS, folder)
            frames += [Frame(second + one.second, (*above, *prompt, *one.rows)) for one in seen]
            second += seen[-1].second + _TYPING_SECONDS
            above = (*frames[-1].rows, ())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return frames


def _prompt(command: str) -> tuple[tuple[tuple[str, Style], ...], ...]:
    """Continued at a flag, as one would type it."""
    lines = [""]
    for words in command.replace(" --", "\n--").split("\n"):
        if len(lines[-1]) + len(words) > COLUMNS - 6:
            lines[-1] += " \\"
            lines.append("    " + words)
        else:
            lines[-1] = f"{lines[-1]} {words}".lstrip() if len(lines) == 1 else f"{lines[-1]} {words}"
    bold = Style(bold=True)
    return ((("$ ", Style("green")), (lines[0], bold)), *(((line, bold),) for line in lines[1:]))


_OPTIONS = {name: ("--cache-dir", "cache") for name in ("warm", "verify")}


def drawn(frames: Sequence[Frame], moves: bool) -> str:
    shown = _thinned(frames) if moves else [frames[-1]]
    rows = max(len(frame.rows) for frame in shown)
    width, height = COLUMNS * _CHARACTER + 2 * _PAD, rows * _LINE + 2 * _PAD
    length = shown[-1].second + _HOLD_SECONDS
    groups, rules = [], []
    for number, frame in enumerate(shown):
        groups.append(f'<g class="f f{number}">{_text(frame)}</g>')
        if len(shown) > 1:
            rules.append(_visible(number, shown, length))
    style = (
        f"text{{font:{_SIZE}px ui-monospace,Menlo,Consolas,monospace;white-space:pre}}"
        + (f".f{{visibility:hidden;animation:{length:.1f}s step-end infinite}}" if len(shown) > 1 else "")
        + "".join(rules)
        + "@media (prefers-reduced-motion:reduce){.f{animation:none!important}"
        + f".f{len(shown) - 1}{{visibility:visible}}}}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}"><style>{style}</style>'
        f'<rect width="100%" height="100%" rx="8" fill="#20242c"/>{"".join(groups)}</svg>\n'
    )


def _thinned(frames: Sequence[Frame]) -> list[Frame]:
    """What a reader can follow: few changes a second, and few in all."""
    gap = max(_SHORTEST_SECONDS, frames[-1].second / _MOST_FRAMES)
    kept = [frames[0]]
    for frame, following in zip(frames[1:], [*frames[2:], None], strict=True):
        last = following is None or following.second - frame.second > gap
        if frame.rows != kept[-1].rows and (last or frame.second - kept[-1].second >= gap):
            kept.append(frame)
    return kept


def _visible(number: int, shown: Sequence[Frame], length: float) -> str:
    start = 100 * shown[number].second / length
    end = 100 * (shown[number + 1].second if number + 1 < len(shown) else length) / length
    steps = f"0%{{visibility:{'visible' if start == 0 else 'hidden'}}}{start:.2f}%{{visibility:visible}}"
    if end < 100:
        steps += f"{end:.2f}%{{visibility:hidden}}"
    return f".f{number}{{animation-name:k{number}}}@keyframes k{number}{{{steps}}}"


def _text(frame: Frame) -> str:
    lines = []
    for row, runs in enumerate(frame.rows):
        column, spans = 0, []
        for text, style in runs:
            if text.strip():
                spans.append(_span(text, column, style))
            column += len(text)
        if spans:
            lines.append(f'<text y="{_PAD + (row + 0.75) * _LINE:.1f}">{"".join(spans)}</text>')
    return "".join(lines)


def _span(text: str, column: int, style: Style) -> str:
    """Each word group at its own place and as wide as its cells, whatever the font."""
    weight = ' font-weight="bold"' if style.bold else ""
    faint = ' opacity=".6"' if style.dim else ""
    stripped = text.lstrip()
    x = _PAD + (column + len(text) - len(stripped)) * _CHARACTER
    body = stripped.rstrip()
    return (
        f'<tspan x="{x:.1f}" textLength="{len(body) * _CHARACTER:.1f}" fill="{_INK[style.colour]}"'
        f"{weight}{faint}>{escape(body)}</tspan>"
    )


if __name__ == "__main__":
    main()
