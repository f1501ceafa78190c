"""Where the `kaiwo` command begins: until the program can answer Ctrl-C, Ctrl-C just ends the process.

Importing the program takes most of the time of a short command, and Python would answer with a traceback meanwhile. A
process that a shell started in the background ignores Ctrl-C, and goes on doing so. `_signal` is built in; `signal`
imports for 20 ms, in which Ctrl-C would show a traceback.
"""

import _signal as signal  # type: ignore[import-not-found]
import sys

IS_OURS = signal.getsignal(signal.SIGINT) is signal.default_int_handler
if IS_OURS:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run() -> int:
    from kaiwo.cli.main import INTERRUPTED, main

    if not IS_OURS:
        return main()
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = main()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        return code
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(run())
