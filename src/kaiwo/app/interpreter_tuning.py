"""Tune the Python interpreter, so that garbage collection and busy threads do not delay the event loop."""

import gc
import sys

# Both were measured with bench/loop.py on two busy cores, as the event loop's lag in the 99th percentile.
# The collector visits every entry of the large tables at each full collection: by default 33 times in half a minute,
# 50 ms each; with the loaded state frozen and these thresholds, once. The model's structs are not collected at all.
GC_THRESHOLD = (2_000, 10, 100)
# How long a busy thread may keep the interpreter from the event loop: Python's own 5 ms cause a lag of 42 to 74 ms,
# this one of 22 to 25 ms.
SWITCH_S = 0.0005


def tune_interpreter() -> None:
    """Call this after the state has been loaded, which is then exempt from garbage collection.

    It is not collected before: a start leaves 200 dead objects of 80,000, and finding them took 40 ms of it.
    """
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLD)
    sys.setswitchinterval(SWITCH_S)
