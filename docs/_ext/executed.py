"""Run the Python blocks of the tutorials when the site is built, and show what they print.

The blocks of a page share their variables, as they would in a notebook. A block that fails ends the build.
"""

import contextlib
import io
import os
import re
import tempfile
import warnings
from typing import Any

_BLOCK = re.compile(r"^```python\n(.*?)^```\n", re.DOTALL | re.MULTILINE)


def run_blocks(text: str, page: str) -> str:
    """Return a page with the output of each Python block below it."""
    variables: dict[str, Any] = {"__name__": "__main__"}

    def shown(block: re.Match[str]) -> str:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(block[1], page, "exec"), variables)
        return f"{block[0]}\n```text\n{output.getvalue().rstrip()}\n```\n" if output.getvalue().strip() else block[0]

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _BLOCK.sub(shown, text)


def _show_outputs(app: Any, name: str, source: list[str]) -> None:
    if name.startswith("tutorials/"):
        os.environ.setdefault("MPLBACKEND", "Agg")
        source[0] = run_blocks(source[0], name)


def setup(app: Any) -> dict[str, bool]:
    """Register the hook."""
    app.connect("source-read", _show_outputs)
    return {"parallel_read_safe": False}
