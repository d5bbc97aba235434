"""``python -m vicinal`` is the command ``vicinal``."""

import sys

from vicinal.cli import main

if __name__ == "__main__":
    sys.exit(main())
