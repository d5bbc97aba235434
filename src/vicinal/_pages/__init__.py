"""HTML pages and fragments: one layout, one style, one helper for charts; every text is escaped by the template engine.

::

      layout.html, style.css    of all pages           parts.html     tables and cells
      report.html, report.js    the report             adapter.html   the page about an adapter
      comparison.html           a comparison in a notebook
      charts.py                 charts as SVG text
"""

import base64
import hashlib
import json
import re
from functools import cache
from importlib.resources import files
from types import ModuleType
from typing import Any

from vicinal._version import __version__
from vicinal._words import percent, printable

__all__ = ["charts_module", "fragment", "has_templates", "page", "with_minus"]


def has_templates() -> bool:
    """Return whether the template engine is installed."""
    try:
        import jinja2  # noqa: F401
    except ImportError:
        return False
    return True


def charts_module() -> ModuleType:
    """Return the module of charts, whose texts the template engine escapes."""
    _environment()  # which names the extra if the template engine is not installed
    from vicinal._pages import charts

    return charts


def page(
    template: str, sections: dict[str, str], *, data: Any = None, with_script: bool = False, **content: Any
) -> str:
    """Return a whole document that needs no network.

    Parameters
    ----------
    template : str
        The template, with a block for each section.
    sections : dict of str to str
        The headings of the sections that the page has, by key; a block has the name of a key, with underscores.
    data : plain values
        What the script draws: JSON in a data block, from which the script only sets text, never HTML.
    with_script : bool
        Whether the page has the script of the report.
    content
        The variables of the template, among them title, verdict, next and facts.
    """
    script = _text_of("report.js") if with_script else ""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    document = fragment(
        template,
        sections=sections,
        data=_safe_json(data),
        script=script,
        digest=digest,
        style=_text_of("style.css"),
        version=__version__,
        **content,
    )
    return document


def fragment(template: str, **content: Any) -> str:
    """Return a rendered template; control characters and marks that turn text around are written as escapes."""
    return printable(_environment().get_template(template).render(**content).lstrip())


@cache
def _environment() -> Any:
    try:
        import jinja2
    except ImportError as error:
        raise ImportError(
            "HTML pages need the package 'jinja2', which is not installed. Run: pip install 'vicinal[report]'"
        ) from error
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("vicinal", "_pages"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["minus"] = with_minus
    environment.globals["percent"] = percent
    return environment


def with_minus(text: Any) -> Any:
    """Return a text with a minus sign before its numbers, which is as wide as a plus sign; names, dates and what is quoted keep their hyphens."""
    return type(text)(re.sub(r"(?<![\w.\-'\"])-(?=[0-9])", "\u2212", text))


def _text_of(name: str) -> str:
    return files("vicinal._pages").joinpath(name).read_text(encoding="utf-8")


def _safe_json(value: Any) -> str:
    """Return JSON that is safe in a script element, whatever text it contains."""
    text = json.dumps(_printable(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _printable(value: Any) -> Any:
    """Return the value with `printable` strings, because the script would show characters that JSON only escapes."""
    if isinstance(value, dict):
        return {key: _printable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_printable(item) for item in value]
    return printable(value) if isinstance(value, str) else value
