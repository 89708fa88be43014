"""The command `star`."""

from __future__ import annotations

import signal
import sys

from starlark_engine import _native


def main() -> None:
    """Do what the command line says."""
    # Python would hear Ctrl-C only after the engine has ended.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_native.star(sys.argv))
