"""`python -m labelloop`."""

import sys

from labelloop.cli import main

if __name__ == "__main__":
    sys.exit(main())
