"""The report in a real browser (Debian's chromium); skipped if there is none."""

import json
from pathlib import Path

import browsing
import numpy as np
import pandas as pd
import pytest
from needs import needs

import vicinal
from vicinal.datasets import make_machine_states, make_slanted_bars

webdriver = needs("selenium.webdriver")
pytestmark = [*browsing.MARKS, pytest.mark.usefixtures("short_search_in_this_file")]
EVIL = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>"
FEW = {"metrics": ["euclidean", "z-scored", "lca"], "densities": ["gaussian", "lca"], "n_repeats": 1, "n_splits": 2}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    driver = browsing.start(webdriver, tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Four reports: with classes, with markup in every text, without classes, with a number to predict."""
    folder = tmp_path_factory.mktemp("pages")
    X, y = make_machine_states(160, random_state=0)
    named = pd.DataFrame(X, columns=[f"sensor {i}" for i in range(8)])
    comparison = vicinal.compare(X, y, **FEW)
    vicinal.report(named, y, comparison=comparison, title="machine").save(folder / "plain.html")
    evil = pd.DataFrame(X, columns=[EVIL, *("a very long column name " * 4 + str(i) for i in range(7))])
    labels = np.array([EVIL + str(value) for value in y])
    names = [f"{EVIL}{i}" for i in range(160)]
    vicinal.report(evil, labels, comparison=comparison, title=EVIL, row_names=names, notes=[EVIL]).save(
        folder / "evil.html"
    )
    bars = make_slanted_bars(150, random_state=0)[0]
    alone = vicinal.compare(bars, densities=["gaussian", "lca"], n_repeats=1, n_splits=2)
    vicinal.report(bars, comparison=alone).save(folder / "bars.html")
    numbers = vicinal.compare(X, X[:, 0], metrics=["euclidean", "rca"], densities=[], n_repeats=1, n_splits=2)
    vicinal.report(named, X[:, 0], comparison=numbers).save(folder / "numbers.html")
    return folder


def open_page(browser, path, width=1400, scheme="light"):
    browsing.open_url(browser, Path(path).as_uri(), width, scheme)


def mouse(browser, kind, x, y):
    browser.execute_cdp_cmd(
        "Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}
    )


def centre_of(browser, side, i):
    """Where the i-th point lies in the window, after scrolling it into view."""
    script = """
      const point = document.querySelector(`#plane-${arguments[0]} .point[data-i="${arguments[1]}"]`);
      point.scrollIntoView({block: "center", behavior: "instant"});
      const box = point.getBoundingClientRect();
      return [box.x + box.width / 2, box.y + box.height / 2];"""
    return browser.execute_script(script, side, i)


def lonely_point(browser, side):
    """A point with no other within reach of the pointer."""
    script = """
      const all = [...document.querySelectorAll(`#plane-${arguments[0]} .point`)].map((p) => [p.dataset.i, +p.getAttribute("cx"), +p.getAttribute("cy")]);
      let best = null, widest = -1;
      for (const [i, x, y] of all) {
        const gap = Math.min(...all.filter((other) => other[0] !== i).map((other) => Math.hypot(other[1] - x, other[2] - y)));
        if (gap > widest) { widest = gap; best = +i; }
      }
      return best;"""
    return browser.execute_script(script, side)


@pytest.mark.parametrize("page", ["plain", "evil", "bars", "numbers"])
@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (420, "dark")])
def test_no_errors_no_requests_no_overflow(browser, pages, page, width, scheme):
    path = pages / f"{page}.html"
    open_page(browser, path, width, scheme)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    outside = """
      const inside = (node) => node.closest(".scroll, pre, .hidden, .skip, #tip") !== null;
      return [...document.querySelectorAll("body *")].filter((node) => !inside(node) && !(node instanceof SVGElement))
        .filter((node) => node.getBoundingClientRect().right > innerWidth + 1).map((node) => node.outerHTML.slice(0, 80));"""
    assert browser.execute_script(outside) == []
    assert browser.get_log("browser") == []
    requests = []
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            requests.append(message["params"]["request"]["url"])
    assert [url for url in requests if not url.startswith(("data:", path.as_uri()))] == []
    assert browser.execute_script("return window.hacked") is None
    assert browser.execute_script("return document.images.length") == 0


def test_texts_are_shown_as_they_are(browser, pages):
    open_page(browser, pages / "evil.html")
    assert browser.title == EVIL
    assert browser.execute_script("return document.querySelector('h1').textContent") == EVIL
    assert EVIL in browser.execute_script("return document.querySelector('#metric').textContent")
    assert EVIL in browser.execute_script("return document.querySelector('#legend').textContent")


@pytest.mark.parametrize("page", ["plain", "evil"])
def test_hover_shows_the_row(browser, pages, page):
    open_page(browser, pages / f"{page}.html")
    i = lonely_point(browser, "before")
    mouse(browser, "mouseMoved", *centre_of(browser, "before", i))
    tip = browser.execute_script("const t = document.querySelector('#tip'); return [t.hidden, t.textContent]")
    data = browser.execute_script("return JSON.parse(document.querySelector('#views').textContent)")
    assert tip[0] is False
    assert tip[1].startswith(f"row {data['rows'][i]}, {data['classes'][data['codes'][i]]}")
    for name, value in zip(data["columns"], data["values"][i], strict=True):
        assert name in tip[1]
        assert f"{value:g}"[:4] in tip[1]
    hot = "return [...document.querySelectorAll('.point.hot')].map((p) => p.closest('svg').id + p.dataset.i)"
    assert browser.execute_script(hot) == [f"plane-before{i}", f"plane-after{i}"]
    mouse(browser, "mouseMoved", 2, 2)
    assert browser.execute_script("return document.querySelector('#tip').hidden") is True
    assert browser.execute_script("return window.hacked") is None


def test_click_shows_neighbours_before_and_after(browser, pages):
    open_page(browser, pages / "plain.html")
    data = browser.execute_script("return JSON.parse(document.querySelector('#views').textContent)")
    i = lonely_point(browser, "after")
    x, y = centre_of(browser, "after", i)
    for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
        mouse(browser, kind, x, y)
    lit = "return [...document.querySelectorAll(`#plane-${arguments[0]} .point.on`)].map((p) => +p.dataset.i)"
    for side in ("before", "after"):
        near = data["planes"][data[side]]["neighbors"][i]
        assert set(browser.execute_script(lit, side)) == {i, *near}
        assert browser.execute_script(f"return document.querySelectorAll('#plane-{side} .link').length") == 10
        right = sum(data["codes"][j] == data["codes"][i] for j in near)
        assert f"{right} of 10 neighbours" in browser.execute_script(
            "return document.querySelector('#details').textContent"
        )
    browser.execute_script("document.querySelector('#clear').click()")
    assert browser.execute_script("return document.querySelectorAll('.link').length") == 0
    assert "No row is selected" in browser.execute_script("return document.querySelector('#details').textContent")
    assert browser.get_log("browser") == []


def test_keyboard_legend_and_row_search(browser, pages):
    open_page(browser, pages / "plain.html")
    press = "document.querySelector('#plane-before').dispatchEvent(new KeyboardEvent('keydown', {key: arguments[0], bubbles: true}))"
    details = "return document.querySelector('#details').textContent"
    browser.execute_script(press, "ArrowRight")
    assert browser.execute_script(details).startswith("row 0")
    browser.execute_script(press, "ArrowLeft")
    assert browser.execute_script(details).startswith("row 159")
    browser.execute_script(press, "Escape")
    assert "No row" in browser.execute_script(details)
    find = "const i = document.querySelector('#pick'); i.value = arguments[0]; i.dispatchEvent(new Event('change'))"
    browser.execute_script(find, "17")
    assert browser.execute_script(details).startswith("row 17")
    browser.execute_script(find, "no such row")
    assert "is not drawn" in browser.execute_script(details)
    browser.execute_script("document.querySelector('#legend button').click()")
    codes = browser.execute_script("return JSON.parse(document.querySelector('#views').textContent).codes")
    assert browser.execute_script("return document.querySelectorAll('#plane-after .point.on').length") == codes.count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_of_texts(browser, pages, scheme):
    """WCAG AA: 4.5 to 1 for texts, against the nearest background behind them."""
    open_page(browser, pages / "plain.html", scheme=scheme)
    script = """
      const parse = (text) => (text.match(/[0-9.]+/g) || []).map(Number);
      const shade = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
      const behind = (node) => {
        for (; node; node = node.parentElement) {
          const colour = parse(getComputedStyle(node).backgroundColor);
          if (colour.length === 3 || colour[3] === 1) return colour;
        }
        return [255, 255, 255];
      };
      const weak = [];
      for (const node of document.querySelectorAll("body *")) {
        const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
        if (!own || node.closest("script, .skip, .hidden, #tip")) continue;
        const style = getComputedStyle(node);
        const ink = shade(parse(node instanceof SVGElement ? style.fill : style.color)), paper = shade(behind(node));
        const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
        if (ratio < 4.5) weak.push([ratio.toFixed(2), node.tagName, node.className.baseVal ?? node.className, node.textContent.slice(0, 30)]);
      }
      return weak;"""
    assert browser.execute_script(script) == []


def test_a_numeric_target_colours_the_rows_and_is_shown_for_neighbours(browser, pages):
    open_page(browser, pages / "numbers.html")
    strokes = browser.execute_script(
        "return [...document.querySelectorAll('#plane-after .point')].map((point) => getComputedStyle(point).stroke)"
    )
    assert len(set(strokes)) > 50  # shades by rank
    i = lonely_point(browser, "after")
    where = centre_of(browser, "after", i)
    mouse(browser, "mousePressed", *where)
    mouse(browser, "mouseReleased", *where)
    details = browser.execute_script("return document.querySelector('#details').textContent")
    assert "target" in details
    assert details.count("its neighbours' mean is") == 2
    assert browser.execute_script("return document.querySelector('#legend').textContent").startswith("target ")


def click(browser, selector):
    browser.execute_script("document.querySelector(arguments[0]).click()", selector)


def cells(browser, table, column):
    """The texts of a column of the n-th table that sorts, of the rows that are shown."""
    script = """
      const rows = [...document.querySelectorAll("table.sortable")[arguments[0]].tBodies[0].rows];
      return rows.map((row) => (row.cells[arguments[1]] ?? row.cells[0]).textContent.trim());"""
    return browser.execute_script(script, table, column)


def test_tables_sort_by_numbers_in_both_orders(browser, pages):
    open_page(browser, pages / "plain.html")
    head = "table.sortable thead th:nth-child(2)"
    click(browser, head + " button")
    down = [float(text.split()[0]) for text in cells(browser, 0, 1)]
    assert down == sorted(down, reverse=True)
    aria = "return document.querySelector(arguments[0]).getAttribute('aria-sort')"
    assert browser.execute_script(aria, head) == "descending"
    click(browser, head + " button")
    assert [float(text.split()[0]) for text in cells(browser, 0, 1)] == down[::-1]
    assert browser.execute_script(aria, head) == "ascending"


def test_any_method_can_be_chosen_in_a_plane(browser, pages):
    open_page(browser, pages / "plain.html")
    data = browser.execute_script("return JSON.parse(document.querySelector('#views').textContent)")
    where = "return [...document.querySelectorAll('#plane-before .point')].map((p) => p.getAttribute('cx'))"
    before = browser.execute_script(where)
    places = {plane["name"]: place for place, plane in enumerate(data["planes"])}
    assert set(places) == {"euclidean", "z-scored", "lca"}
    choose = """
      const list = document.querySelector("#method-before");
      list.value = arguments[0]; list.dispatchEvent(new Event("change"));"""
    browser.execute_script(choose, str(places["lca"]))
    assert browser.execute_script(where) != before
    assert browser.execute_script(where) == browser.execute_script(where.replace("before", "after"))
    share = browser.execute_script("return document.querySelector('#explained-before').textContent")
    assert share == f"{100 * data['planes'][places['lca']]['explained']:.0f} % of the variance in this plane"


def test_unusual_rows_lead_to_the_plane_and_back(browser, pages):
    open_page(browser, pages / "plain.html")
    data = browser.execute_script("return JSON.parse(document.querySelector('#views').textContent)")
    i, place = next((int(i), place) for i, place in data["unusual"].items() if place == 2)
    click(browser, f"#unusual-{place} button")
    assert browser.execute_script("return document.querySelector('#pick').value") == data["rows"][i]
    hot = "return [...document.querySelectorAll('#plane-after .point.hot')].map((p) => Number(p.dataset.i))"
    assert browser.execute_script(hot) == [i]
    click(browser, "#details a")
    assert browser.execute_script("return location.hash") == f"#unusual-{place}"
    assert browser.execute_script("return document.querySelector('tr.found').id") == f"unusual-{place}"


def test_curves_say_their_values(browser, pages):
    open_page(browser, pages / "plain.html")
    script = """
      const knot = document.querySelectorAll("#purity [data-tip]")[3];
      knot.scrollIntoView({block: "center", behavior: "instant"});
      const box = knot.getBoundingClientRect();
      return [box.x + box.width / 2, box.y + box.height / 2, knot.dataset.tip];"""
    x, y, expected = browser.execute_script(script)
    mouse(browser, "mouseMoved", x, y)
    shown = browser.execute_script(
        "return [document.querySelector('#tip').hidden, document.querySelector('#tip').textContent]"
    )
    assert shown == [False, expected]
    assert "number of neighbours k 4: " in expected
    mouse(browser, "mouseMoved", 2, 2)
    assert browser.execute_script("return document.querySelector('#tip').hidden")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_column_is_cut_on_a_phone(browser, pages, scheme):
    for page in ("plain", "evil", "bars", "numbers"):
        open_page(browser, pages / f"{page}.html", 420, scheme)
        cut = """
          return [...document.querySelectorAll("table.methods td, table.methods th")].filter((cell) => {
            const box = cell.getBoundingClientRect();
            return box.width > 0 && (box.right > window.innerWidth || box.left < 0);
          }).length;"""
        assert browser.execute_script(cut) == 0
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 420


OVERLAPS = """
  const found = [];
  for (const svg of document.querySelectorAll("svg.chart")) {
    const box = svg.getBoundingClientRect();
    if (!box.width) continue;
    const texts = [...svg.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
    texts.forEach(([name, a], i) => {
      if (a.left < box.left - 1 || a.right > box.right + 1) found.push(["cut", name]);
      for (const [other, b] of texts.slice(i + 1)) {
        const width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (width > 2 && height > 3) found.push([name, other]);
      }
    });
  }
  for (const box of document.querySelectorAll(".scroll"))
    if (box.scrollWidth > box.clientWidth + 1 && !box.querySelector("svg.heat")) found.push(["scrolls", box.getAttribute("aria-label")]);
  return found;
"""


@pytest.mark.parametrize("width", [420, 1400])
@pytest.mark.parametrize("page", ["plain", "bars", "numbers"])
def test_no_text_of_a_chart_is_cut_or_covers_another(browser, pages, page, width):
    """The label of an axis used to cover its tick labels, and on a phone the names of the curves were cut off."""
    open_page(browser, pages / f"{page}.html", width)
    assert browser.execute_script(OVERLAPS) == []


def test_both_planes_begin_at_the_same_height(browser, pages):
    open_page(browser, pages / "plain.html")
    top = (
        "return ['before', 'after'].map((side) => document.getElementById(`plane-${side}`).getBoundingClientRect().top)"
    )
    before, after = browser.execute_script(top)
    assert before == after


def test_tables_sort_by_names_from_a_to_z(browser, pages):
    open_page(browser, pages / "plain.html")
    click(browser, "table.sortable thead th:nth-child(1) button")
    names = cells(browser, 0, 0)
    assert names == sorted(names, key=str.casefold)
