"""The built documentation site: links, pictures, search and two widths in a browser.

Set VICINAL_SITE to the folder that ``python -m sphinx -W docs FOLDER`` has written; without it these tests skip.
"""

import functools
import http.server
import json
import os
import re
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import browsing
import pytest
from needs import needs

import vicinal

FOLDER = Path(os.environ.get("VICINAL_SITE") or "no-site")
needs_site = pytest.mark.skipif(
    not (FOLDER / "index.html").is_file(), reason="set VICINAL_SITE to the folder of a built site"
)
pytestmark = needs_site
PAGES = sorted(page.relative_to(FOLDER).as_posix() for page in FOLDER.rglob("*.html") if "_static" not in page.parts)
PROSE = [page for page in PAGES if not page.startswith("generated/") and page not in {"genindex.html", "search.html"}]
GUIDE = ("lca", "manifold_parzen", "local_lca", "rca", "nca", "adapters", "outliers", "density_classification", "idea")


class Page(HTMLParser):
    """The links, resources, anchors and text of one page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.resources, self.anchors, self.images = [], [], set(), []
        self.text = path.read_text(encoding="utf-8")
        self.feed(self.text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.anchors.update(given[name] for name in ("id", "name") if given.get(name))
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") in {"stylesheet", "icon", "shortcut icon"}:
            self.resources.append(given["href"])
        elif tag in {"img", "script"} and given.get("src"):
            self.resources.append(given["src"])
        if tag == "img":
            self.images.append(given)


@pytest.fixture(scope="module")
def parsed():
    return {page: Page(FOLDER / page) for page in PAGES}


def test_every_link_leads_somewhere(parsed):
    broken = []
    for name, page in parsed.items():
        for link in page.links + page.resources:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (FOLDER / name).parent / unquote(parts.path) if parts.path else FOLDER / name
            if not target.exists():
                broken.append(f"{name}: {link}")
            elif parts.fragment and target.suffix == ".html":
                goal = target.resolve().relative_to(FOLDER.resolve()).as_posix()
                if unquote(parts.fragment) not in parsed[goal].anchors:
                    broken.append(f"{name}: {link} (no such place)")
    assert broken == []


def test_no_page_needs_a_network(parsed):
    remote = [(name, what) for name, page in parsed.items() for what in page.resources if "//" in what]
    assert remote == []
    assert not any("mathjax" in what.lower() for page in parsed.values() for what in page.resources)


def test_formulas_are_read_as_latex_reads_them(parsed):
    half = r"<mfrac[^>]*>\s*<mn>1</mn>\s*<mn>2</mn>\s*</mfrac>"
    assert re.search(half, parsed["idea.html"].text)  # \tfrac12 is one half, not a fraction of twelve
    assert "tfrac" not in re.sub(r"<annotation.*?</annotation>", "", parsed["idea.html"].text, flags=re.S)


def test_the_gallery_has_pictures(parsed):
    examples = [name for name in PAGES if re.match(r"gallery/.*/plot_\w+\.html", name)]
    assert len(examples) >= 15
    for name in examples + [f"{page}.html" for page in GUIDE] + [p for p in PAGES if p.startswith("tutorials/")]:
        pictures = [image for image in parsed[name].images if "_images/" in image["src"]]
        assert pictures, f"{name} has no picture"
        assert all(image.get("alt") for image in pictures), f"{name} has a picture without a text"


def test_the_version_is_shown(parsed):
    assert all(vicinal.__version__ in page.text for page in parsed.values())
    assert "Changelog" in parsed["changelog.html"].text


def test_summaries_of_the_api_are_whole(parsed):
    rows = re.findall(r'<tr class="row-(?:odd|even)">(.*?)</tr>', parsed["api.html"].text, re.S)
    assert len(rows) >= len(vicinal.__all__) - 1
    for row in rows:
        summary = re.sub(r"<[^>]+>", "", row.split("</td>")[1]).strip()
        assert summary.endswith((".", "?")), summary
        assert not summary.endswith(("sec.", "Eq.", "Fig.")), summary
        assert summary.count("(") == summary.count(")"), summary


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        """Nothing is printed for each request."""


@pytest.fixture(scope="module")
def address():
    """Where the site is served; pages of a search load other pages, which files may not do."""
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(_Quiet, directory=str(FOLDER.resolve()))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    webdriver = needs("selenium.webdriver")
    driver = browsing.start(webdriver, tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


def in_browser(test):
    for mark in browsing.MARKS:
        test = mark(test)
    return test


def complaints(browser, address, width):
    """Return the problems of the open page: console messages, requests to other hosts, missing pictures, its width."""
    found = [entry["message"] for entry in browser.get_log("browser") if "favicon.ico" not in entry["message"]]
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            url = message["params"]["request"]["url"]
            if not url.startswith(
                ("data:", "blob:", "chrome", "about:", address)
            ):  # the new tab of Chromium is not ours
                found.append(f"asks for {url}")
    script = """
      const lost = [...document.images].filter((image) => image.complete && !image.naturalWidth).map((image) => "no picture: " + image.src);
      const flat = [...document.querySelectorAll("math")].filter((math) => !math.closest("[hidden], details:not([open])"))
        .filter((math) => math.getBoundingClientRect().height < 4).map((math) => "an empty formula: " + math.textContent);
      const wide = document.documentElement.scrollWidth > arguments[0]
        ? [`${document.documentElement.scrollWidth} pixels wide, where there are ${arguments[0]}`] : [];
      return [...lost, ...flat, ...wide];"""
    return found + browser.execute_script(script, width)


@in_browser
@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (420, "dark")])
def test_every_page_opens_without_complaints(browser, address, width, scheme):
    wrong = {}
    for page in PROSE:
        browsing.open_url(browser, address + page, width, scheme)
        if found := complaints(browser, address, width):
            wrong[page] = found
    assert wrong == {}


@in_browser
@pytest.mark.parametrize(("width", "scheme"), [(1400, "dark"), (420, "light")])
def test_click_through(browser, address, width, scheme):
    browsing.open_url(browser, address + "index.html", width, scheme)
    background = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    dark = sum(map(int, re.findall(r"\d+", background)[:3])) < 3 * 128
    assert dark == (scheme == "dark")
    for goal in ("search_in_fewer_dimensions", "outliers_in_a_table", "see_then_deploy"):
        browser.execute_script(f"document.querySelector('.sd-card a[href*=\"{goal}\"]').click()")
        assert browser.current_url.endswith(f"tutorials/{goal}.html")
        assert complaints(browser, address, width) == []
        browser.back()
    for _ in range(8):  # through the first pages of the guide, by the links at their ends
        before = browser.current_url
        browser.execute_script("document.querySelector('a.next-page').click()")
        assert browser.current_url != before
        assert complaints(browser, address, width) == []
    if width < 1000:  # the table of contents is a drawer that a button opens
        browser.execute_script("document.querySelector('label[for=\"__navigation\"]').click()")
        assert browser.execute_script(
            "return document.querySelector('.sidebar-drawer').getBoundingClientRect().right > 0 || "
            "document.getElementById('__navigation').checked"
        )


@in_browser
@pytest.mark.parametrize(
    ("word", "pages"),
    [
        ("recall", ("adapters", "glossary")),
        ("chunklet", ("rca", "glossary")),
        ("bandwidth", ("troubleshooting", "glossary")),
    ],
)
def test_the_search_finds(browser, address, word, pages):
    browsing.open_url(browser, address + "index.html")
    browser.execute_script(
        "const field = document.querySelector('.sidebar-search'); field.value = arguments[0]; field.form.submit()", word
    )
    from selenium.webdriver.support.ui import WebDriverWait

    def hrefs(driver):
        done = "#search-results ul.search li a"
        found = [link.get_attribute("href") for link in driver.find_elements("css selector", done)]
        return all(any(f"/{page}.html" in link for link in found) for page in pages) and found

    assert WebDriverWait(browser, 30).until(hrefs)
    assert complaints(browser, address, 1400) == []
