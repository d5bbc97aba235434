"""Charts as SVG text.  Colours are CSS variables, so that they suit the light and the dark mode."""

from typing import Any

import numpy as np
from markupsafe import Markup

Curve = tuple[str, list[float | None], str]  # its name, its values and its CSS class
_WIDTHS = {"wide": 720, "narrow": 350}
_DIGIT = 7.2  # the width of a figure of a tick, in pixels
_LETTER = 6.9  # the width of a letter of the name of a curve
_LEAST_GAP = 15  # between the names of curves, in pixels
_EMPTY = Markup("")


def _text(x: float, y: float, content: object, css: str = "tick", anchor: str = "middle", turned: str = "") -> Markup:
    """Return an SVG text element; `turned` is the point around which it is turned by a quarter."""
    turn = Markup(' transform="rotate(-90 {})"').format(turned) if turned else ""
    markup = Markup('<text x="{:.1f}" y="{:.1f}" class="{}" text-anchor="{}"{}>{}</text>')
    return markup.format(x, y, css, anchor, turn, content)


def _shortened(name: str, most: int) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _minus(text: str) -> str:
    return text.replace("-", "\u2212") if text.startswith("-") else text


def svg(width: float, height: float, body: Markup, label: str, css: str = "", most: float | None = None) -> Markup:
    """Return an SVG image that scales with its container, up to `most` pixels."""
    limit: Any = ""
    if most is not None:
        limit = Markup(' style="max-width:{:.0f}px;min-width:{:.0f}px"').format(most, min(most, 330))
    markup = Markup(
        '<svg viewBox="0 0 {} {}" class="{}" role="img" aria-label="{}"{} preserveAspectRatio="xMidYMid meet">{}</svg>'
    )
    return markup.format(width, height, css, label, limit, body)


def nice_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from low to high."""
    if not high > low:
        return [low]
    raw = (high - low) / about
    power = 10.0 ** np.floor(np.log10(raw))
    step = power * min((m for m in (1, 2, 2.5, 5, 10) if m * power >= raw), default=10)
    return [float(value) for value in np.arange(np.ceil(low / step - 1e-9) * step, high + 1e-9 * step, step)]


def interval_mark(score: dict[str, Any], scale: tuple[float, float], css: str, label: str, width: int = 190) -> Markup:
    """Return a dot with its interval on a scale."""
    low, high = scale

    def at(value: float) -> float:
        return 8 + (width - 16) * (min(max(value, low), high) - low) / ((high - low) or 1.0)

    left = at(low if score["low"] is None else score["low"])
    right = at(high if score["high"] is None else score["high"])
    body = Markup(
        '<line x1="8" x2="{}" y1="11" y2="11" class="rail"/>'
        '<line x1="{:.1f}" x2="{:.1f}" y1="11" y2="11" class="whisker {}"/>'
        '<circle cx="{:.1f}" cy="11" r="5" class="dot {}"/>'
    ).format(width - 8, left, right, css, at(score["mean"]), css)
    return svg(width, 22, body, label, "mark")


def line_charts(curves: list[Curve], **options: Any) -> Markup:
    """Return the same chart for a screen and for a phone, because text that shrinks with a chart becomes unreadable."""
    return _EMPTY.join(
        Markup('<div class="{}">{}</div>').format(css, line_chart(curves, width=width, **options))
        for css, width in _WIDTHS.items()
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
) -> Markup:
    """Return a chart of curves (name, values, css class) over 1, 2, 3, ..., named at their right ends without overlap."""
    top, bottom = 12, 44
    # Room for the longest name at the right end, of which a narrow chart shows the beginning.
    longest_name = max(len(name) for name, _, _ in curves)
    most_letters = min(longest_name, int((0.4 * width - 24) / _LETTER))
    right = 24 + _LETTER * most_letters if longest_name else 20
    longest = max(len(values) for _, values, _ in curves)
    flat = [value for _, values, _ in curves for value in values if value is not None]
    low, high = min(flat), max(flat)
    pad = 0.06 * (high - low) or 0.5 * abs(high) or 1.0
    low, high = low - pad, high + pad
    if as_percent:
        low, high = max(low, 0.0), min(high, 1.0)

    def tick_text(tick: float) -> str:
        return f"{100 * tick:.3g} %" if as_percent else _minus(f"{tick:.6g}")

    # Room for the longest tick between the axis and its name.
    left = 34 + _DIGIT * max(len(tick_text(tick)) for tick in nice_ticks(low, high))

    def at(i: float, value: float) -> tuple[float, float]:
        x = left + (width - left - right) * (i / max(longest - 1, 1))
        return x, top + (height - top - bottom) * (1 - (value - low) / (high - low))

    body = []
    line = Markup('<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" class="{}"/>')
    for tick in nice_ticks(low, high):
        y = at(0, tick)[1]
        body.append(line.format(left, y, width - right, y, "grid"))
        body.append(_text(left - 8, y + 4, tick_text(tick), anchor="end"))
    for tick in nice_ticks(x_first, x_first + longest - 1, max(2, width // 120)):
        if tick == int(tick):
            body.append(_text(at(tick - x_first, low)[0], height - bottom + 18, int(tick)))
    middle = (top + height - bottom) / 2
    body.append(_text((left + width - right) / 2, height - 6, x_label, "axis"))
    body.append(_text(14, middle, y_label, "axis", turned=f"14 {middle:.1f}"))
    ends: list[Any] = []
    knot = Markup('<circle cx="{:.1f}" cy="{:.1f}" r="2.2" class="knot {}{}" data-tip="{}"/>')
    for name, values, css in curves:
        known = [(i, value, *at(i, value)) for i, value in enumerate(values) if value is not None]
        points = " ".join(f"{x:.1f},{y:.1f}" for _, _, x, y in known)
        body.append(Markup('<polyline points="{}" class="curve {}"/>').format(points, css))
        silent = "" if len(known) <= 60 else " silent"
        for i, value, x, y in known:
            tip = f"{name + ', ' if name else ''}{x_label} {x_first + i}: "
            tip += f"{100 * value:.1f} %" if as_percent else _minus(f"{value:.6g}")
            body.append(knot.format(x, y, css, silent, tip))
        if name:
            ends.append([known[-1][3], known[-1][2:], name, css])
    _push_apart(ends, height - bottom + 4)
    for y, (x, at_y), name, css in ends:
        body.append(line.format(x + 4, at_y, x + 14, y, f"lead {css}"))
        body.append(_text(x + 17, y + 4, _shortened(name, most_letters), f"name {css}", anchor="start"))
    return svg(width, height, _EMPTY.join(body), label, "chart")


def _push_apart(ends: list[Any], limit: float) -> None:
    """Sort names by their height, the first entry of each, and push them apart, then back up from the bottom."""
    ends.sort(key=lambda end: end[0])
    for place in range(1, len(ends)):
        ends[place][0] = max(ends[place][0], ends[place - 1][0] + _LEAST_GAP)
    for place in range(len(ends) - 1, -1, -1):
        ends[place][0] = min(ends[place][0], limit)
        limit = ends[place][0] - _LEAST_GAP


def heatmap(names: list[str], matrix: list[list[float | None]], label: str) -> Markup:
    """Return a square of coloured cells: one colour for positive, one for negative, stronger for larger."""
    n = len(names)
    cell = 26 if n <= 14 else 20
    short = [_shortened(name, 18) for name in names]
    margin = 14 + int(7.4 * max(map(len, short)))
    size = margin + n * cell + 6
    square = Markup(
        '<rect x="{}" y="{}" width="{}" height="{}" rx="2" class="cell {}" fill-opacity="{:.3f}"><title>{} × {}: {}</title></rect>'
    )
    body = []
    for i, row in enumerate(matrix):
        y, x = margin + i * cell, margin + i * cell + cell * 0.66
        body.append(_text(margin - 6, y + cell * 0.66, short[i], anchor="end"))
        body.append(_text(x, margin - 6, short[i], anchor="start", turned=f"{x:.1f} {margin - 6}"))
        for j, entry in enumerate(row):
            value = entry or 0.0
            css, strength = "plus" if value >= 0 else "minus", min(1.0, abs(value)) ** 0.7
            number = _minus(f"{value:+.3f}")
            at = (margin + j * cell, y, cell - 1, cell - 1)
            body.append(square.format(*at, css, strength, names[i], names[j], number))
    return svg(size, size, _EMPTY.join(body), label, "heat", most=1.25 * size)
