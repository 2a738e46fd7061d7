"""`python -m sgl_tune`."""

import sys

from sgl_tune.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
