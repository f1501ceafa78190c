"""The limit of open files: Kaiwo raises its own for connections, and gives commands the one that it was started with.

A command must not see a raised limit: programs that use select(2) break on descriptors above 1023.
"""

import functools
import resource

ENOUGH = 65_536  # a limit of a billion, as containers have it, makes programs slow that try to close every descriptor


@functools.cache
def inherited_open_files() -> int:
    """The soft limit that this process was started with."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_open_files() -> int:
    """Raise the soft limit as far as it is useful and allowed. Returns it."""
    inherited_open_files()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return ENOUGH if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted
