"""Run one `kaiwo` command line: return its exit code, and print any failure as one sentence on stderr.

Exit codes: 0 success; 1 failed, not found or no server; 2 invalid input; 3 refused by a queue or the policy.
"""

import gc
import os
import re
import sys

import click

from kaiwo.cli.verb_base import exit_code, unknown_option_message
from kaiwo.cli.verb_table import ReaderLeftError, kaiwo
from kaiwo.model.errors import KaiwoError

_NUMBER_ERRORS = (  # click's messages about numbers, in plain English
    (r"is not a valid integer( range)?$", "is not a whole number"),
    (r"is not a valid float( range)?$", "is not a number"),
    (r"is not in the range (\S+?)<=?x<=?(\S+)$", r"is not between \1 and \2"),
    (r"is not in the range x>=?(\S+)$", r"is less than \1"),
    (r"is not in the range x<=?(\S+)$", r"is more than \1"),
)
INTERRUPTED = 130  # what a shell expects after Ctrl-C
# Imports make little garbage: collecting it took 15 of the 100 ms that a verb runs, and 33 ms of the start of a server,
# which makes 110,000 objects until it tunes the collector.
GC_THRESHOLDS = (1_000_000, 10, 10)


def main(argv: list[str] | None = None) -> int:
    """Run these arguments, or those of this process. With `KAIWO_DEBUG=1` a failure prints its traceback."""
    before = gc.get_threshold()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        return _run(argv)
    finally:
        gc.set_threshold(*before)
        if argv is None:
            gc.freeze()  # the process ends: a last collection would be wasted


def _run(argv: list[str] | None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that can't show "…" still gets its answer
    args = sys.argv[1:] if argv is None else argv
    try:
        code = kaiwo.main(args or ["--help"], prog_name="kaiwo", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (ReaderLeftError, BrokenPipeError):
        # Python would complain again at exit without this.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    # People type this program: whatever went wrong, they read one sentence, not a traceback.
    except Exception as error:
        if os.environ.get("KAIWO_DEBUG"):
            import traceback

            traceback.print_exc()
        print(f"kaiwo: {error_message(error)}", file=sys.stderr)
        return exit_code(error)


def error_message(error: Exception) -> str:
    """The error as one sentence: what happened, to what, and what to do."""
    if isinstance(error, click.UsageError):
        verb = error.ctx.command_path if error.ctx else "kaiwo"
        fact = error.format_message().rstrip(".")
        if isinstance(error, click.NoSuchOption):
            fact = unknown_option_message(error)
        fact = fact[:1].lower() + fact[1:]
        for pattern, replacement in _NUMBER_ERRORS:
            fact = re.sub(pattern, replacement, fact)
        return fact if "kaiwo" in fact else f"{fact}; see: {verb} --help"
    if isinstance(error, KaiwoError):
        return str(error)
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, UnicodeEncodeError):
        return "an argument is not valid UTF-8; write it in UTF-8"
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return f"internal error ({type(error).__name__}: {error}); set KAIWO_DEBUG=1 to see the traceback"


if __name__ == "__main__":
    sys.exit(main())
