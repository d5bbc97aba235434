"""What the commands print and write is what was recorded; `tests/golden/golden.py write` records it again."""

from golden.golden import differences, outputs, recorded


def test_commands_print_and_write_what_was_recorded():
    assert "\n".join(differences(recorded(), outputs())) == ""


def test_differences_of_records_are_found():
    old = {"command": {"code": 0, "out": ["score 1.25 of 3 rows"]}}
    assert differences(old, {"command": {"code": 0, "out": ["score 1.25000001 of 3 rows"]}}) == []
    assert len(differences(old, {"command": {"code": 0, "out": ["score 1.26 of 3 rows"]}})) == 1
    assert len(differences(old, {"command": {"code": 1, "out": ["score 1.25 of 3 columns"]}})) == 2
