"""Run a campaign: ``python tests/campaigns NAME [--cases N] [--seconds S] [--seed S]``, or ``all`` of them."""

import importlib
import sys
from pathlib import Path

# If a folder is run, Python puts the folder itself on the path; the campaigns are imported as a package from its parent.
sys.path[0] = str(Path(__file__).resolve().parents[1])
NAMES = sorted(
    path.stem
    for path in Path(__file__).parent.glob("*.py")
    if path.stem not in ("__init__", "__main__", "harness", "workers")
)


def main() -> int:
    """Run the campaigns that are named on the command line."""
    from campaigns import harness

    name, *arguments = sys.argv[1:] or ["--help"]
    if name not in (*NAMES, "all"):
        print(f"usage: python tests/campaigns NAME [--help]\nNAME is one of {', '.join(NAMES)}, or all.")
        return 2
    found = [
        harness.run(importlib.import_module(f"campaigns.{chosen}"), arguments)
        for chosen in (NAMES if name == "all" else [name])
    ]
    return max(found)


if __name__ == "__main__":
    sys.exit(main())
