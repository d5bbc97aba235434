"""Test the HTML pages: one layout, escaped texts, and charts that show what they are given."""

import re
import sys

import numpy as np
import pytest

from vicinal._pages import fragment, has_templates, page, with_minus
from vicinal._pages.charts import heatmap, interval_mark, line_chart

EVIL = "<b onclick=x>&\"'\u202e"


def small_page(**content):
    return page(
        "adapter.html",
        {"data": "How the pairs were used"},
        **{
            "title": EVIL,
            "next": EVIL,
            "verdict": {"text": EVIL, "state": "even", "details": []},
            "facts": [EVIL],
            "rows": 1,
            "columns": 2,
            "unit": EVIL,
            "pairs": {"fit": 1, "choose": 1, "test": 1},
            "side": "both",
            **content,
        },
    )


def test_page_escapes_every_text_and_forbids_every_request():
    text = small_page()
    assert "<b onclick" not in text
    assert (
        text.count("&lt;b onclick=x&gt;&amp;&#34;&#39;\\u202e") == 6
    )  # the title twice, next, verdict, facts, unit twice
    assert "default-src 'none'" in text
    assert "<script" not in text
    assert "script-src" not in text
    assert "How the pairs were used" in text


def test_page_without_the_template_engine_names_the_extra(monkeypatch):
    from vicinal._pages import _environment

    _environment.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert not has_templates()
    with pytest.raises(ImportError, match=r"pip install 'vicinal\[report\]'"):
        fragment("comparison.html")


def test_minus_stands_before_numbers_and_names_keep_hyphens():
    assert with_minus("Pass --na '-999'.") == "Pass --na '-999'."  # which a reader copies
    assert with_minus("-1.5 to -0.5, row-1, 2020-01-05, x-2") == "\u22121.5 to \u22120.5, row-1, 2020-01-05, x-2"


def points_of(chart, css):
    (points,) = re.findall(rf'<polyline points="([^"]*)" class="curve {css}"/>', chart)
    return [tuple(map(float, point.split(","))) for point in points.split()]


def test_line_chart_draws_larger_values_higher_and_later_passes_to_the_right():
    chart = line_chart(
        [("<up>", [1.0, 2.0, 4.0], "best"), ("flat", [1.0, None, 1.0], "plain")], x_label="x", y_label="y", label="l"
    )
    (x0, y0), (x1, y1), (x2, y2) = points_of(chart, "best")
    assert x0 < x1 < x2
    assert y0 > y1 > y2
    assert (y0 - y2) == pytest.approx(3 * (y0 - y1), abs=0.2)
    assert [y for _, y in points_of(chart, "plain")] == [y0, y0]
    assert "&lt;up&gt;" in chart
    assert "<up>" not in chart


def test_interval_mark_is_at_its_place_on_the_scale():
    mark = interval_mark({"mean": 0.5, "low": 0.25, "high": 2.0}, (0.0, 1.0), "learned", "label")
    (left, right), (dot,) = (
        re.findall(r'x1="([\d.]+)" x2="([\d.]+)" y1="11" y2="11" class="whisker', mark)[0],
        re.findall(r'cx="([\d.]+)"', mark),
    )
    assert (float(left), float(dot), float(right)) == (8 + 174 * 0.25, 8 + 174 * 0.5, 182.0)  # the end is cut off


def test_heatmap_has_a_cell_for_each_pair_with_its_sign():
    cells = re.findall(
        r'class="cell (\w+)" fill-opacity="([\d.]+)"><title>([^<]*)<',
        heatmap(["a", "<b>"], [[1.0, -0.5], [-0.5, None]], "m"),
    )
    assert [css for css, _, _ in cells] == ["plus", "minus", "minus", "plus"]
    assert cells[1][2] == "a × &lt;b&gt;: \u22120.500"
    assert float(cells[0][1]) > float(cells[1][1]) > float(cells[3][1]) == 0.0


def test_names_of_curves_that_end_together_are_apart_and_inside_the_chart():
    curves = [(f"curve {i}", [1.0, 0.0], "plain") for i in range(5)] + [("top", [0.0, 1.0], "best")]
    chart = line_chart(curves, x_label="k", y_label="share", label="a chart", height=300)
    heights = sorted(float(y) for y in re.findall(r'y="([\d.]+)" class="name', chart))
    assert len(heights) == 6
    assert min(np.diff(heights)) >= 14.9
    assert heights[-1] <= 300 - 44 + 8
