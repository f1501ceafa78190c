"""The grants in force, on disk: which compute units and which daemons are taken, whoever asks next.

In:    grants.   Out: the same grants after `kill -9`.
Never: half a record; one that cannot be read is left out and named.
"""

import contextlib
import hashlib
import os

import msgspec

from kaiwo.devices.sharing.words import Grant

SUFFIX = ".json"


class Records:
    """A folder with one file a grant."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        os.makedirs(folder, mode=0o700, exist_ok=True)

    def load(self) -> tuple[dict[str, Grant], list[str]]:
        """Grants by owner, and the files that are none."""
        found: dict[str, Grant] = {}
        odd = []
        for name in sorted(name for name in os.listdir(self.folder) if name.endswith(SUFFIX)):
            try:
                with open(os.path.join(self.folder, name), "rb") as file:
                    grant = msgspec.json.decode(file.read(), type=Grant)
            except (OSError, msgspec.MsgspecError) as error:
                odd.append(f"{name} is no record of a grant: {error}")
                continue
            found[grant.owner] = grant
        return found, odd

    def keep(self, grant: Grant) -> None:
        path = self._path(grant.owner)
        temporary = f"{path}.{os.getpid()}"
        with open(temporary, "wb") as file:
            file.write(msgspec.json.encode(grant))
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)

    def drop(self, owner: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(owner))

    def _path(self, owner: str) -> str:
        """Owners have names like `team/train main-0`: not for files."""
        return os.path.join(self.folder, hashlib.sha256(owner.encode()).hexdigest()[:24] + SUFFIX)
