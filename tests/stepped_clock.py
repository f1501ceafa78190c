"""The system's clock of a real process, which a test changes while the process runs."""

import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
static volatile int64_t *step;
__attribute__((constructor)) static void find(void) {
    step = mmap(0, 8, PROT_READ, MAP_SHARED, open(getenv("TEST_CLOCK_STEP"), O_RDONLY), 0);
    if (!getenv("TEST_CLOCK_FOR_CHILDREN")) unsetenv("LD_PRELOAD");
}
int clock_gettime(clockid_t clock, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, at);
    if (!failed && clock == CLOCK_REALTIME) at->tv_sec += *step;
    return failed;
}
"""


def can_step_clocks() -> bool:
    """A C compiler makes the library that changes the clock."""
    return shutil.which("cc") is not None


class SteppedClock:
    """Processes with its `env` see the system's clock changed by `set`. Without a C compiler they do not.

    `for_children`: so do the processes that they start.
    """

    def __init__(self, folder: Path, for_children: bool = False) -> None:
        self.env: dict[str, str] = {}
        self._step = folder / "clock-step"
        if not can_step_clocks():
            return
        library, source = folder / "clock.so", folder / "clock.c"
        source.write_text(SOURCE)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        self._step.write_bytes(struct.pack("q", 0))
        self.env = {"LD_PRELOAD": str(library), "TEST_CLOCK_STEP": str(self._step)}
        self.env |= {"TEST_CLOCK_FOR_CHILDREN": "1"} if for_children else {}

    def set(self, seconds: int) -> None:
        if self.env:
            with self._step.open("r+b") as file:
                file.write(struct.pack("q", seconds))
