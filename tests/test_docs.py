"""The Python blocks of README and docs run, page by page, and the documentation is complete."""

import importlib
import inspect
import re
from pathlib import Path

import pytest
from needs import needs

import vicinal
from vicinal.cli.parser import make_parser

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


# Their examples take many seconds; slow tests run them.
LONG = {
    "docs/adapters.md",
    "docs/density_classification.md",
    "docs/local_lca.md",
    "docs/larger_than_memory.md",
    "docs/lca.md",
    "docs/manifold_parzen.md",
    "docs/more_than_one_machine.md",
    "docs/nca.md",
    "docs/outliers.md",
    "docs/pictures.md",
    "docs/report.md",
    "docs/tutorials/cluster_after_lca.md",
    "docs/tutorials/messy_table.md",
    "docs/tutorials/outliers_in_a_table.md",
    "docs/tutorials/search_images.md",
    "docs/tutorials/search_in_fewer_dimensions.md",
    "docs/tutorials/see_then_deploy.md",
}


def slow_where_long(names):
    """Parameters for names of pages, long ones marked as slow."""
    return [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in names]


@pytest.mark.usefixtures("short_search")
@pytest.mark.parametrize("name", slow_where_long(page.relative_to(ROOT).as_posix() for page in PAGES))
def test_python_blocks_of_the_page(name, tmp_path, monkeypatch):
    page = ROOT / name
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    if not blocks:
        pytest.skip("no Python on this page")
    monkeypatch.chdir(tmp_path)  # what a page writes does not stay
    monkeypatch.setenv("MPLBACKEND", "Agg")
    namespace: dict = {"__name__": "__main__"}
    for block in blocks:
        for tool in ("torch", "dask"):
            if f"import {tool}" in block:
                needs(tool)
        exec(compile(block, str(page), "exec"), namespace)


def test_outputs_of_tutorials_are_shown_below_their_code(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "_ext")
    from executed import run_blocks

    page = "# A page\n\n```python\nx = 2\n```\n\nThen\n\n```python\nprint(x + 1)\n```\n\n```text\nnot run\n```\n"
    shown = page.replace("print(x + 1)\n```\n", "print(x + 1)\n```\n\n```text\n3\n```\n")
    assert run_blocks(page, "page") == shown
    with pytest.raises(ZeroDivisionError):
        run_blocks("```python\n1 / 0\n```\n", "page")


def test_the_page_of_the_command_lists_all_options(monkeypatch):
    """Each option of each command is in one of the generated lists, or in a group that is listed once."""
    needs("sphinx")
    monkeypatch.syspath_prepend(ROOT / "docs" / "_ext")
    from options import options_of

    page = (ROOT / "docs" / "command.md").read_text(encoding="utf-8")
    lists = re.findall(r"^```\{command-options\} (\w+)\n(?::group: ([\w ]+)\n)?", page, re.MULTILINE)
    listed = {name for command, group in lists for name, _ in options_of(command, group or None)}
    parser = make_parser()
    (commands,) = (action for action in parser._actions if hasattr(action, "choices") and action.choices)
    strings = {
        name for command in commands.choices.values() for action in command._actions for name in action.option_strings
    }
    missing = {name for name in strings if not any(name in entry.replace(",", " ").split() for entry in listed)}
    assert missing == {"-h", "--help", "--folder"}  # the option of demo is not listed


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}, which does not exist"


def test_every_public_name_is_documented():
    for name in vicinal.__all__:
        if name != "__version__":
            assert getattr(vicinal, name).__doc__, f"vicinal.{name} has no docstring"


# -- docstrings: every public parameter and attribute has a sentence of its own ----------------------------------------


def public_objects():
    """Public classes and functions by name, those of the public modules included."""
    names = {name: getattr(vicinal, name) for name in vicinal.__all__ if name != "__version__"}
    for place in sorted(vicinal._MODULES):
        module = importlib.import_module(f"vicinal.{place}")
        names |= {f"{place}.{name}": getattr(module, name) for name in module.__all__}
    return {
        name: thing
        for name, thing in names.items()
        if callable(thing) and thing is not vicinal.results.TrainingRowsWarning
    }


def documented(thing):
    """Whether each entry of the sections "Parameters" and "Attributes" has a description, by name."""
    found = {}
    for section in re.findall(
        r"^(?:Parameters|Attributes)\n-+\n(.*?)(?=^\w[^\n]*\n-{3,}|\Z)", inspect.getdoc(thing), re.S | re.M
    ):
        for names, description in re.findall(
            r"^([\w*, ]+?)(?: :[^\n]*)?\n((?:(?: +[^\n]*)?\n)*)", section + "\n", re.M
        ):
            found |= {name.lstrip("*"): bool(description.strip()) for name in names.split(", ")}
    return found


def members(name, thing):
    """A public class or function, and the methods whose docstrings list their parameters."""
    yield name, thing
    for part in dir(thing) if inspect.isclass(thing) else ():
        method = getattr(thing, part)
        ours = inspect.isfunction(method) and method.__module__.startswith("vicinal") and not part.startswith("_")
        if ours and "    Parameters\n" in (method.__doc__ or ""):
            yield f"{name}.{part}", method


def test_every_public_parameter_has_a_sentence():
    missing = []
    for name, member in (part for item in public_objects().items() for part in members(*item)):
        sentences = documented(member)
        names = [entry for entry in inspect.signature(member).parameters if not entry.startswith(("_", "self"))]
        missing += [f"{name}: {entry} has no description" for entry, described in sentences.items() if not described]
        if sentences or len(names) > 1:
            missing += [f"{name}: {entry} is not documented" for entry in names if entry not in sentences]
    assert missing == []


def test_every_public_name_is_in_the_api_list():
    listed = set((ROOT / "docs" / "api.md").read_text(encoding="utf-8").split())
    assert set(vicinal.__all__) - {"__version__"} <= listed


def test_the_changelog_begins_with_this_version():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version = re.search(r"^## (\S+)", changelog, re.MULTILINE)[1]
    assert version == vicinal.__version__.removesuffix(".dev0")


EXAMPLES = sorted((ROOT / "docs" / "examples").rglob("plot_*.py"))


def test_the_gallery_needs_no_network_and_no_data_folder():
    assert len(EXAMPLES) >= 15
    for example in EXAMPLES:
        text = example.read_text(encoding="utf-8")
        assert not re.search(r"\bfetch_|datasets\.load\(|import torch", text), (
            f"{example.name} needs more than the docs extra"
        )
        assert "plt.subplots" in text, f"{example.name} draws nothing"


def test_pictures_on_pages_come_from_the_gallery():
    known = {f"/gallery/{path.parent.name}/images/sphx_glr_{path.stem}_001.png" for path in EXAMPLES}
    for page in PAGES:
        for picture in re.findall(r"^```\{figure\} (/gallery\S+)", page.read_text(encoding="utf-8"), re.MULTILINE):
            assert picture in known, f"{page.name} shows {picture}, which no example draws"
    for page in [*(ROOT / "docs" / "tutorials").glob("*.md")]:
        assert "{figure} /gallery/" in page.read_text(encoding="utf-8"), f"{page.name} has no picture"
