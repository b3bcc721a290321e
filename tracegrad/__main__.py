"""``python -m tracegrad``: see `tracegrad.cli`."""

import sys

from tracegrad.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
