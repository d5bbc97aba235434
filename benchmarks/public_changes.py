"""Print the public names that were removed, added or moved between two versions of the package, and changed signatures.

python benchmarks/public_changes.py OLD_PYTHON NEW_PYTHON

Both arguments are interpreters in which a version is installed.  The names are those of `tests/test_public_names.py`.
"""

import subprocess
import sys
from pathlib import Path

LIST = """
import sys
sys.path.insert(0, {tests!r})
import test_public_names
print(test_public_names.public_names())
"""


def public_names(python):
    """Return the signature of every public name of a version; methods follow the name of their class."""
    program = LIST.format(tests=str(Path(__file__).resolve().parents[1] / "tests"))
    lines = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True).stdout.splitlines()
    found, owner = {}, ""
    for line in filter(None, lines):
        name, bracket, signature = line.strip().partition("(")
        if line.startswith("vicinal."):
            owner = name
        found[name if name.startswith("vicinal.") else owner + name] = bracket + signature
    return found


def parameters(signature):
    """Return the parameters of a signature as a set of texts."""
    return set(signature.strip("()").split(", "))


def main():
    old, new = map(public_names, sys.argv[1:3])
    last = {}
    for name in new.keys() - old.keys():
        last[name.rpartition(".")[2]] = name
    removed = sorted(old.keys() - new.keys())
    owners = {name for name in removed if name.rpartition(".")[0] not in removed}
    for title, lines in (
        ("removed", [name for name in removed if name in owners and name.rpartition(".")[2] not in last]),
        (
            "moved",
            [
                f"{name} -> {last[name.rpartition('.')[2]]}"
                for name in removed
                if name.rpartition(".")[2] in last and name in owners
            ],
        ),
        (
            "new",
            sorted(name for name in new.keys() - old.keys() if name.rpartition(".")[0] not in new.keys() - old.keys()),
        ),
    ):
        print(f"{title}: {len(lines)}", *lines, sep="\n  ")
    changed = sorted(name for name in old.keys() & new.keys() if old[name] != new[name])
    print(f"other parameters: {len(changed)}")
    for name in changed:
        before, after = parameters(old[name]), parameters(new[name])
        gone, come = sorted(before - after), sorted(after - before)
        print(f"  {name}: without {', '.join(gone) or 'nothing'}; with {', '.join(come) or 'nothing new'}")


if __name__ == "__main__":
    main()
