"""The page of departures and the comments in the code have the same numbers and the same titles."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def on_the_page():
    """Titles by (name, number)."""
    found, name = {}, None
    for line in (ROOT / "docs" / "departures.md").read_text(encoding="utf-8").splitlines():
        if heading := re.match(r"`(\w+)`.*:$|`LCAGauss`", line):
            name = heading[1] or "LCAGauss"
        elif line.startswith("#"):
            name = None
        elif item := re.match(r"(\d+)\. (?:\*\*(.+?)\*\*)?", line):
            assert item[2], f"a departure without a title: {line}"
            assert name, f"a departure of nobody: {line}"
            assert (name, int(item[1])) not in found, line
            found[name, int(item[1])] = item[2]
    return found


def in_the_code():
    """Titles by (name, number), from comments."""
    found = {}
    papers = [ROOT / "papers" / "face_pairs.py", ROOT / "papers" / "nca" / "figure_2.py"]
    for file in sorted([*(ROOT / "src").rglob("*.py"), *papers]):
        for line in file.read_text(encoding="utf-8").splitlines():
            if not (comment := re.search(r"\bDeparture", line)):
                continue
            comment = re.match(r"\s*# Departure (\d+) \((\w+)\): ([^.]+(?:\.\d[^.]*)?)\.", line)
            if comment is None:
                assert "Departures from the paper" in line, f"{file.name}: {line.strip()}"
                continue
            key = comment[2], int(comment[1])
            assert key not in found, f"{file.name} has departure {key} a second time"
            found[key] = comment[3]
    return found


def test_the_page_and_the_code_agree_in_number_and_wording():
    page = on_the_page()
    assert len(page) >= 50
    assert in_the_code() == page


def test_departures_are_numbered_from_one_on():
    numbers = {}
    for name, number in on_the_page():
        numbers.setdefault(name, []).append(number)
    for name, found in numbers.items():
        assert found == list(range(1, len(found) + 1)), name


def test_lists_in_docstrings_are_as_long():
    """Classes whose docstring lists its departures have as many as the page."""
    page = on_the_page()
    seen = 0
    for file in sorted((ROOT / "src" / "vicinal").rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        for owner, listed in re.findall(
            r"^class (\w+).*?Departures from the paper:\n\n(.*?)\n\n +\w", text, re.DOTALL | re.MULTILINE
        ):
            numbers = [int(number) for number in re.findall(r"^ +(\d+)\. ", listed, re.MULTILINE)]
            assert numbers == [number for name, number in page if name == owner], owner
            seen += 1
    assert seen >= 4
