"""Remember which workloads changed recently, so that a reader that polls need not read all of them.

Their number is bounded. Any thread may call `since` while another one calls `note`. A question costs as much as there
are changes to tell, not as much as is remembered: readers ask many times a second.
"""

KEPT = 20_000
FIRST_LOOK = 256  # changes that a reader looks at before it looks at twice as many


class RecentChanges:
    """The latest change of every name that changed recently."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._log: list[tuple[int, str]] = []  # version and name, the latest last; a name may be there repeatedly
        self._complete_from = 0  # every change after this version is known

    def note(self, name: str, version: int) -> None:
        self._log.append((version, name))
        if len(self._log) > 2 * self._kept:
            self._shorten()

    def begin_at(self, version: int) -> None:
        """Forget every change up to this version."""
        self._complete_from = version
        self._log = []

    def since(self, version: int) -> list[str] | None:
        """The names that changed after this version, the latest first; None when that is too long ago to know."""
        log = self._log  # before `_complete_from`: another thread sets the two in the other order
        end = len(log)  # that thread may add more meanwhile
        if version < self._complete_from:
            return None
        look = FIRST_LOOK
        while look < end and log[end - look][0] > version:
            look *= 2
        recent = log[max(0, end - look) : end]
        return list({name: None for at, name in reversed(recent) if at > version})

    def _shorten(self) -> None:
        """Keep the latest change of each name, and of those the latest ones."""
        latest = {name: version for version, name in self._log}
        names = sorted(latest, key=latest.__getitem__)
        dropped = names[: max(0, len(names) - self._kept)]
        if dropped:
            self._complete_from = latest[dropped[-1]]
        self._log = [(latest[name], name) for name in names[len(dropped) :]]
