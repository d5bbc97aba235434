"""Formulas as MathML, which every current browser renders by itself: no script, no font and no network is needed."""

import re

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.writers.html5 import HTML5Translator


def _mathml(self: HTML5Translator, node: nodes.math | nodes.math_block, as_block: bool) -> str:
    """The formula of a node; one that docutils cannot translate stops the build with its place."""
    formula = re.sub(r"\\([bB]igg?)(?![a-zA-Z])", r"\\\1l", node.astext().strip())  # docutils knows \Bigl and not \Big
    formula = re.sub(
        r"frac(\d)(\d)", r"frac{\1}{\2}", formula
    )  # docutils would read the twelve in \frac12 as one number
    if as_block and r"\\" in formula and r"\begin" not in formula:
        formula = rf"\begin{{aligned}}{formula}\end{{aligned}}"
    try:
        return tex2mathml(formula, as_block=as_block)
    except MathError as error:
        raise ExtensionError(
            f"{node.source}:{node.line}: the formula {formula!r} cannot be translated: {error}"
        ) from error


def visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    """Write an inline formula."""
    self.body.append(f'<span class="math">{_mathml(self, node, as_block=False)}</span>')
    raise nodes.SkipNode


def visit_block(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a displayed formula; a wide one scrolls inside of its box."""
    self.body.append(self.starttag(node, "div", CLASS="math"))
    self.body.append(f"{_mathml(self, node, as_block=True)}</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer under the name ``mathml``."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
