"""Charts as SVG text.  Colours are CSS variables, so that they suit the light and the dark mode."""

from html import escape
from typing import Any

import numpy as np

Curve = tuple[str, list[float | None], str]  # its name, its values and its CSS class


def text(x: float, y: float, content: object, css: str = "tick", anchor: str = "middle", **attributes: object) -> str:
    """Return an SVG text element."""
    extra = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in attributes.items())
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{css}" text-anchor="{anchor}"{extra}>{escape(str(content))}</text>'


def svg(width: float, height: float, body: str, label: str, css: str = "", most: float | None = None) -> str:
    """Return an SVG image that scales with its container, up to `most` pixels."""
    limit = "" if most is None else f' style="max-width:{most:.0f}px;min-width:{min(most, 330):.0f}px"'
    return (
        f'<svg viewBox="0 0 {width} {height}" class="{css}" role="img" aria-label="{escape(label, quote=True)}"{limit} '
        f'preserveAspectRatio="xMidYMid meet">{body}</svg>'
    )


def nice_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from low to high."""
    if not high > low:
        return [low]
    raw = (high - low) / about
    power = 10.0 ** np.floor(np.log10(raw))
    step = power * min((m for m in (1, 2, 2.5, 5, 10) if m * power >= raw), default=10)
    return [float(value) for value in np.arange(np.ceil(low / step - 1e-9) * step, high + 1e-9 * step, step)]


def interval_mark(score: dict[str, Any], low: float, high: float, css: str, label: str, width: int = 190) -> str:
    """Return a dot with its interval on the scale from low to high."""

    def at(value: float) -> float:
        return 8 + (width - 16) * (min(max(value, low), high) - low) / ((high - low) or 1.0)

    left = at(low if score["low"] is None else score["low"])
    right = at(high if score["high"] is None else score["high"])
    body = (
        f'<line x1="8" x2="{width - 8}" y1="11" y2="11" class="rail"/>'
        f'<line x1="{left:.1f}" x2="{right:.1f}" y1="11" y2="11" class="whisker {css}"/>'
        f'<circle cx="{at(score["mean"]):.1f}" cy="11" r="5" class="dot {css}"/>'
    )
    return svg(width, 22, body, label, "mark")


_WIDTHS = {"wide": 720, "narrow": 350}
_DIGIT = 7.2  # the width of a figure of a tick, in pixels


def line_charts(curves: list[Curve], **options: Any) -> str:
    """Return the same chart for a screen and for a phone, because text that shrinks with a chart becomes unreadable."""
    return "".join(
        f'<div class="{css}">{line_chart(curves, width=width, **options)}</div>' for css, width in _WIDTHS.items()
    )


def line_chart(
    curves: list[Curve],
    *,
    x_label: str,
    y_label: str,
    label: str,
    x_first: int = 1,
    width: int = 720,
    height: int = 300,
    as_percent: bool = False,
) -> str:
    """Return a chart of curves (name, values, css class) over 1, 2, 3, ..., named at their right ends without overlap."""
    right, top, bottom = 120 if any(name for name, _, _ in curves) else 20, 12, 44
    longest = max(len(values) for _, values, _ in curves)
    flat = [value for _, values, _ in curves for value in values if value is not None]
    low, high = min(flat), max(flat)
    pad = 0.06 * (high - low) or 0.5 * abs(high) or 1.0
    low, high = low - pad, high + pad
    if as_percent:
        low, high = max(low, 0.0), min(high, 1.0)

    def tick_text(tick: float) -> str:
        return f"{100 * tick:.3g} %" if as_percent else f"{tick:.6g}"

    # Room for the longest tick between the axis and its name.
    left = 34 + _DIGIT * max(len(tick_text(tick)) for tick in nice_ticks(low, high))

    def at(i: float, value: float) -> tuple[float, float]:
        x = left + (width - left - right) * (i / max(longest - 1, 1))
        return x, top + (height - top - bottom) * (1 - (value - low) / (high - low))

    body = []
    for tick in nice_ticks(low, high):
        y = at(0, tick)[1]
        body.append(f'<line x1="{left:.1f}" x2="{width - right}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        body.append(text(left - 8, y + 4, tick_text(tick), anchor="end"))
    for tick in nice_ticks(x_first, x_first + longest - 1, max(2, width // 120)):
        if tick == int(tick):
            body.append(text(at(tick - x_first, low)[0], height - bottom + 18, int(tick)))
    body.append(text((left + width - right) / 2, height - 6, x_label, "axis"))
    body.append(
        text(
            14,
            (top + height - bottom) / 2,
            y_label,
            "axis",
            transform=f"rotate(-90 14 {(top + height - bottom) / 2:.1f})",
        )
    )
    ends: list[Any] = []
    for name, values, css in curves:
        points = [at(i, value) for i, value in enumerate(values) if value is not None]
        body.append(f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" class="curve {css}"/>')
        told = [(i, value) for i, value in enumerate(values) if value is not None]
        silent = "" if len(points) <= 60 else " silent"
        for (x, y), (i, value) in zip(points, told, strict=True):
            shown = f"{100 * value:.1f} %" if as_percent else f"{value:.6g}"
            tip = escape(f"{name + ', ' if name else ''}{x_label} {x_first + i}: {shown}", quote=True)
            body.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.2" class="knot {css}{silent}" data-tip="{tip}"/>')
        if name:
            ends.append([points[-1][1], points[-1], name, css])
    _push_apart(ends, height - bottom + 4)
    for y, (x, at_y), name, css in ends:
        body.append(f'<line x1="{x + 4:.1f}" y1="{at_y:.1f}" x2="{x + 14:.1f}" y2="{y:.1f}" class="lead {css}"/>')
        body.append(text(x + 17, y + 4, name, f"name {css}", anchor="start"))
    return svg(width, height, "".join(body), label, "chart")


def _push_apart(ends: list[Any], limit: float) -> None:
    """Sort names by their height, the first entry of each, and push them apart, then back up from the bottom."""
    ends.sort(key=lambda end: end[0])
    for place in range(1, len(ends)):
        ends[place][0] = max(ends[place][0], ends[place - 1][0] + 15)
    for place in range(len(ends) - 1, -1, -1):
        ends[place][0] = min(ends[place][0], limit)
        limit = ends[place][0] - 15


def heatmap(names: list[str], matrix: list[list[float | None]], label: str) -> str:
    """Return a square of coloured cells: one colour for positive, one for negative, stronger for larger."""
    n = len(names)
    cell = 26 if n <= 14 else 20
    short = [name if len(name) <= 18 else name[:17] + "…" for name in names]
    margin = 14 + int(6.6 * max(map(len, short)))
    size = margin + n * cell + 6
    body = []
    for i, row in enumerate(matrix):
        y = margin + i * cell
        body.append(text(margin - 6, y + cell * 0.66, short[i], "tick", anchor="end"))
        x = margin + i * cell + cell * 0.66
        body.append(
            text(x, margin - 6, short[i], "tick", anchor="start", transform=f"rotate(-90 {x:.1f} {margin - 6})")
        )
        for j, value in enumerate(row):
            value = 0.0 if value is None else value
            css = "plus" if value >= 0 else "minus"
            body.append(
                f'<rect x="{margin + j * cell}" y="{y}" width="{cell - 1}" height="{cell - 1}" rx="2" class="cell {css}" '
                f'fill-opacity="{min(1.0, abs(value)) ** 0.7:.3f}"><title>{escape(f"{names[i]} × {names[j]}: {value:+.3f}")}</title></rect>'
            )
    return svg(size, size, "".join(body), label, "heat", most=1.25 * size)
