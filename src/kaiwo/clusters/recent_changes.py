"""Remember which workloads changed recently, so that a reader that polls need not read all of them.

Their number is bounded. Any thread may call `since` while another one calls `note`.
"""

from itertools import takewhile

KEPT = 20_000


class RecentChanges:
    """Every name once, with its latest version."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._versions: dict[str, int] = {}  # the latest last
        self._complete_from = 0  # every change after this version is known

    def note(self, name: str, version: int) -> None:
        self._versions.pop(name, None)
        self._versions[name] = version
        if len(self._versions) > self._kept:
            self._complete_from = self._versions.pop(next(iter(self._versions)))

    def begin_at(self, version: int) -> None:
        """Forget every change up to this version."""
        self._versions.clear()
        self._complete_from = version

    def since(self, version: int) -> list[str] | None:
        """The names that changed after this version; None when that is too long ago to know."""
        versions = self._versions.copy()  # at once: another thread may note more
        if version < self._complete_from:
            return None
        return [name for name, _ in takewhile(lambda item: item[1] > version, reversed(versions.items()))]
