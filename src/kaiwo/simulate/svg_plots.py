"""Draw plots as inline SVG: lines over time and grouped bars. No scripts, no fonts, no other files."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 12, 40
# Told apart without colours, too: each line has its own dashes, and each bar its own hatching strength.
COLOURS = ("#1f5fa8", "#c2571a", "#2f7d4f", "#8a3ea0", "#6b6b1f", "#a02c4a", "#2a7f8f", "#555555")
DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 4", "4 4", "1 4", "6 2 1 2")
TICKS = 4
LETTER_WIDTH = 6.5


class PlotLine(NamedTuple):
    name: str
    points: Sequence[tuple[float, float]]


class PlotBars(NamedTuple):
    name: str
    values: Sequence[float]  # one for each group


def line_plot(lines: Sequence[PlotLine], x_title: str, y_title: str, top: float | None = None) -> str:
    points = [point for line in lines for point in line.points]
    if not points:
        return _empty()
    low_x, high_x = min(x for x, _ in points), max(x for x, _ in points)
    if 0 < low_x < high_x / 50:
        low_x = 0.0  # a first job some seconds after the beginning would give ticks such as 4.6e-05
    high_y = top if top is not None else nice_top(max(y for _, y in points))
    parts = [_axes(x_title, y_title, high_y), _x_ticks(low_x, high_x)]
    for number, line in enumerate(lines):
        path = " ".join(
            f"{_x(x, low_x, high_x):.1f},{_y(min(max(y, 0.0), high_y), high_y):.1f}" for x, y in line.points
        )
        style = f'stroke="{COLOURS[number % 8]}" stroke-dasharray="{DASHES[number % 8]}"'
        parts.append(f'<polyline fill="none" stroke-width="1.6" {style} points="{path}"/>')
    return _svg(parts, f"{y_title} by {x_title}") + legend([line.name for line in lines], is_line=True)


def bar_plot(groups: Sequence[str], bars: Sequence[PlotBars], x_title: str, y_title: str) -> str:
    values = [value for bar in bars for value in bar.values]
    if not values:
        return _empty()
    high = nice_top(max(values))
    parts = [_axes(x_title, y_title, high)]
    slot = (WIDTH - LEFT - RIGHT) / max(1, len(groups))
    width = slot * 0.8 / max(1, len(bars))
    for at, group in enumerate(groups):
        middle = LEFT + slot * (at + 0.5)
        parts.append(_group_title(group, middle, slot))
        for number, bar in enumerate(bars):
            x, y = LEFT + slot * (at + 0.1) + width * number, _y(bar.values[at], high)
            title = f"<title>{escape(bar.name)}, {escape(group)}: {bar.values[at]:,.1f}</title>"
            size = f'x="{x:.1f}" y="{y:.1f}" width="{max(1.0, width - 1):.1f}" height="{HEIGHT - BOTTOM - y:.1f}"'
            parts.append(f'<rect {size} fill="{COLOURS[number % 8]}">{title}</rect>')
    return _svg(parts, f"{y_title} by {x_title}") + legend([bar.name for bar in bars], is_line=False)


def _group_title(group: str, x: float, slot: float) -> str:
    """As much of it as there is room for; the whole when the pointer rests on it."""
    letters = max(3, int(slot / LETTER_WIDTH))
    shown = group if len(group) <= letters else group[: letters - 1] + "\u2026"
    title = f"<title>{escape(group)}</title>{escape(shown)}"
    return f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{title}</text>'


def legend(names: Sequence[str], is_line: bool) -> str:
    items = []
    for number, name in enumerate(names):
        colour = COLOURS[number % 8]
        if is_line:
            line = f'stroke="{colour}" stroke-width="2" stroke-dasharray="{DASHES[number % 8]}"'
            mark = f'<svg width="26" height="8"><line x1="0" x2="26" y1="4" y2="4" {line}/></svg>'
        else:
            mark = f'<svg width="12" height="10"><rect width="12" height="10" fill="{colour}"/></svg>'
        items.append(f"<span>{mark} {escape(name)}</span>")
    return f'<p class="legend">{" ".join(items)}</p>'


def nice_top(value: float) -> float:
    """The next of 1, 2, 2.5, 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** (len(f"{value:.0f}") - 1) if value >= 1 else 0.1
    return next((step * power for step in (1, 2, 2.5, 5) if step * power >= value), 10 * power)


def _axes(x_title: str, y_title: str, high: float) -> str:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = [f'<line class="axis" x1="{LEFT}" y1="{bottom}" x2="{right}" y2="{bottom}"/>']
    for tick in range(TICKS + 1):
        value, y = high * tick / TICKS, _y(high * tick / TICKS, high)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_number(value)}</text>')
    middle = (TOP + bottom) / 2
    parts.append(f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_title)}</text>')
    turn = f'transform="rotate(-90 12 {middle})" text-anchor="middle"'
    parts.append(f'<text x="12" y="{middle}" {turn}>{escape(y_title)}</text>')
    return "".join(parts)


def _x_ticks(low: float, high: float) -> str:
    marks = [low + (high - low) * tick / TICKS for tick in range(TICKS + 1)]
    y = HEIGHT - BOTTOM + 14
    return "".join(
        f'<text x="{_x(mark, low, high):.1f}" y="{y}" text-anchor="{"end" if mark is marks[-1] else "middle"}">'
        f"{_number(mark)}</text>"
        for mark in marks
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:.2g}"


def _x(value: float, low: float, high: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (value - low) / max(high - low, 1e-9)


def _y(value: float, high: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / high)


def _svg(parts: Sequence[str], label: str) -> str:
    head = f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">'
    return head + "".join(parts) + "</svg>"


def _empty() -> str:
    return "<p>Nothing to show.</p>"
