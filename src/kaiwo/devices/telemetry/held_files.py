"""Small files that are read again and again: opened once, read in place.

In:    paths.   Out: numbers, or None with a problem when the kernel answers nonsense.
Never: takes "not told here" for an illness: a file that is missing, forbidden or unsupported is silent, no problem.

Opening is most of the cost of reading sysfs from Python; held open, a read takes a quarter of the time.
"""

import errno
import os

from kaiwo.devices.amd.files import parse_number, why

SILENT = frozenset({
    errno.ENOENT, errno.EACCES, errno.EPERM, errno.EINVAL, errno.EOPNOTSUPP, errno.ENODATA, errno.EBUSY, errno.EISDIR,
    errno.ELOOP, errno.ENOTDIR, errno.EAGAIN, errno.ENXIO, errno.ESPIPE,
})  # fmt: skip
NOT_TOLD = ("", "N/A", "n/a")
MOST_BYTES = 128
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


class HeldFile:
    """One file. It is opened when first read, and again after an error."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._handle = -1

    def number(self, problems: list[str]) -> int | None:
        """The number in it. What is odd is added to the problems."""
        try:
            if self._handle < 0:
                self._handle = os.open(self.path, _FLAGS)
            data = os.pread(self._handle, MOST_BYTES, 0)
        except OSError as error:
            self.close()
            if error.errno not in SILENT:
                problems.append(f"{os.path.basename(self.path)}: {why(error)}")
            return None
        text = data.decode("latin-1").strip()
        value = parse_number(text)
        if value is None and text not in NOT_TOLD:
            problems.append(f"{os.path.basename(self.path)} holds no number")
        return value

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
