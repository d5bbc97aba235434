"""Run a campaign: ``python fuzz NAME [--cases N] [--seconds S] [--seed S]``, or ``all`` of them."""

import sys
from pathlib import Path

# If a folder is run, Python puts the folder itself on the path. Its modules are imported as a package, and one of them uses fits of the tests.
ROOT = Path(__file__).resolve().parents[1]
sys.path[:1] = [str(ROOT), str(ROOT / "tests")]
NAMES = ("inputs", "model_files", "nulls", "numbers", "pruning")


def main() -> int:
    """Run the campaigns that are named on the command line."""
    from fuzz import harness

    name, *arguments = sys.argv[1:] or ["--help"]
    if name not in (*NAMES, "all"):
        print(f"usage: python fuzz NAME [--help]\nNAME is one of {', '.join(NAMES)}, or all.")
        return 2
    return max(harness.run(f"fuzz.{chosen}", arguments) for chosen in (NAMES if name == "all" else [name]))


if __name__ == "__main__":
    sys.exit(main())
