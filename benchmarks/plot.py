"""Distributions as a drawing: for each time, the share of runs that took no longer. SVG, written by hand."""

from collections.abc import Mapping, Sequence
from html import escape
from math import log10

_WIDTH, _HEIGHT = 760, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 20, 64, 52
_NAME_WIDTH = 220
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")
"""Told apart by everybody, colour-blind or not."""
_TICKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#333}.title{font-size:15px;font-weight:600}"
    ".grid{stroke:#ddd}.curve{fill:none;stroke-width:2}"
)


def distributions(title: str, times_ms: Mapping[str, Sequence[float]]) -> str:
    """Return a drawing of each variant's times, as an SVG document."""
    pooled = [time for times in times_ms.values() for time in times]
    across = _Across(min(pooled) * 0.9, max(pooled) * 1.1)
    curves = [
        _curve(across, name, times, _COLOURS[number % len(_COLOURS)], number)
        for number, (name, times) in enumerate(times_ms.items())
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style>",
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
            f'<text class="title" x="{_LEFT}" y="24">{escape(title)}</text>',
            *_grid(across),
            *curves,
            "</svg>\n",
        ]
    )


class _Across:
    """From milliseconds to a place on the page, by their logarithm."""

    def __init__(self, least: float, most: float) -> None:
        self.least, self.most = least, most

    def __call__(self, time_ms: float) -> float:
        share = (log10(time_ms) - log10(self.least)) / (log10(self.most) - log10(self.least))
        return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)


def _up(share: float) -> float:
    return round(_HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM), 1)


def _grid(across: _Across) -> list[str]:
    lines = []
    for share in (0, 0.25, 0.5, 0.75, 0.95, 1):
        y = _up(share)
        lines.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        lines.append(f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{share * 100:g} %</text>')
    for tick in _TICKS:
        if across.least <= tick <= across.most:
            x = across(tick)
            lines.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{_up(0)}" y2="{_up(1)}"/>')
            lines.append(f'<text x="{x}" y="{_up(0) + 20}" text-anchor="middle">{tick} ms</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    says = "share of runs that took no longer; times on a logarithmic scale"
    return [*lines, f'<text x="{middle}" y="{_HEIGHT - 10}" text-anchor="middle">{says}</text>']


def _curve(across: _Across, name: str, times: Sequence[float], colour: str, number: int) -> str:
    points, share = [f"{across(min(times))},{_up(0)}"], 0.0
    for place, time_ms in enumerate(sorted(times), 1):
        points.append(f"{across(time_ms)},{_up(share)}")
        share = place / len(times)
        points.append(f"{across(time_ms)},{_up(share)}")
    x = _LEFT + number * _NAME_WIDTH
    return (
        f'<polyline class="curve" stroke="{colour}" points="{" ".join(points)}"/>'
        f'<line x1="{x}" x2="{x + 22}" y1="44" y2="44" stroke="{colour}" stroke-width="3"/>'
        f'<text x="{x + 30}" y="48">{escape(name)}</text>'
    )
