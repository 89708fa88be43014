"""The command `star`."""

from __future__ import annotations

import signal
import sys

from starlark_engine import _native


def main() -> None:
    """Run the command line, and exit with its code."""
    # Python would handle Ctrl-C only after the native call has returned.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_native.star(sys.argv))
