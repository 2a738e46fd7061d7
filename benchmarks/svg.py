"""Small multiples, as SVG by hand: no plotting library is needed to draw them again.

Each panel is one curve, on axes of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT, _COLUMNS, _TOP = 250, 170, 4, 40
_LEFT, _RIGHT, _ABOVE, _BELOW = 38, 14, 26, 24
_LEAST_X, _LEAST_Y = 0.3, 0.06
_STYLE = "font-family:sans-serif;font-size:10px;fill:#333"


@dataclass(frozen=True)
class Curve:
    name: str
    points: Sequence[tuple[float, float]]
    labels: Sequence[str]
    marked: int | None = None


def page(title: str, curves: Sequence[Curve]) -> str:
    rows = -(-len(curves) // _COLUMNS)
    width, height = _WIDTH * _COLUMNS, _HEIGHT * rows + _TOP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" style="{_STYLE}">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="12" y="22" font-size="14">{escape(title)}</text>',
    ]
    for number, curve in enumerate(curves):
        x, y = number % _COLUMNS * _WIDTH, number // _COLUMNS * _HEIGHT + _TOP
        lines += [f'<g transform="translate({x},{y})">', *_panel(curve), "</g>"]
    return "\n".join([*lines, "</svg>\n"])


def _panel(curve: Curve) -> list[str]:
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _ABOVE - _BELOW
    xs, ys = _Axis([x for x, _ in curve.points], _LEAST_X), _Axis([y for _, y in curve.points], _LEAST_Y)
    places = [(_LEFT + wide * xs.share(x), _ABOVE + high * (1 - ys.share(y))) for x, y in curve.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    bottom = _ABOVE + high
    lines = [
        f'<text x="{_LEFT}" y="14" font-weight="bold">{escape(curve.name)}</text>',
        f'<path d="M{_LEFT},{_ABOVE}V{bottom}H{_LEFT + wide}" fill="none" stroke="#999"/>',
        f'<text x="4" y="{_ABOVE + 6}">{ys.most:.2f}</text><text x="4" y="{bottom}">{ys.least:.2f}</text>',
        f'<text x="{_LEFT}" y="{bottom + 14}">{xs.least:.2f}</text>',
        f'<text x="{_LEFT + wide}" y="{bottom + 14}" text-anchor="end">{xs.most:.2f} s</text>',
        f'<polyline points="{path}" fill="none" stroke="#4a78b5"/>',
    ]
    for number, ((x, y), label) in enumerate(zip(places, curve.labels, strict=True)):
        colour = "#c0392b" if number == curve.marked else "#4a78b5"
        beside = y - 6 if number % 2 == 0 else y + 12  # neighbours are often near each other
        lines.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')
        lines.append(
            f'<text x="{x:.1f}" y="{beside:.1f}" font-size="8" text-anchor="middle">{escape(label)}</text>'
        )
    return lines


class _Axis:
    """With room for labels, and no shorter than what noise alone would fill."""

    def __init__(self, values: Sequence[float], shortest: float) -> None:
        length = max(max(values) - min(values), shortest) * 1.3
        middle = (max(values) + min(values)) / 2
        self.least = max(0.0, middle - length / 2)
        self.most = self.least + length

    def share(self, value: float) -> float:
        return (value - self.least) / (self.most - self.least)
