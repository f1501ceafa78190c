"""A worker that never answers: it reads its job and waits to be ended."""

import signal
import sys

if __name__ == "__main__":
    sys.stdin.buffer.read()
    signal.pause()
