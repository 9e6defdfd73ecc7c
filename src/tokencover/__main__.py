"""``python -m tokencover`` is the command line."""

import sys

from tokencover.cli import main

if __name__ == "__main__":
    sys.exit(main())
