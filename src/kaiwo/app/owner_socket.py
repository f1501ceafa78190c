"""The socket in KAIWO_HOME through which the CLI talks to Kaiwo.

Unlike a port, nobody else can take it over: only the owner of the folder can make a file there. Both ends check the
user at the other end.
"""

import contextlib
import os
import socket
import stat
import struct

from kaiwo.app.options import SOCKET
from kaiwo.model.errors import ClusterError

_PEER_CREDENTIALS = struct.Struct("3i")  # process, user, group


def is_of_owner(connection: socket.socket) -> bool:
    """True for this process's own user and root; a connection of anybody else is closed before it is read."""
    option = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    _, user, _ = _PEER_CREDENTIALS.unpack(option)
    return user in (0, os.geteuid())


class OwnerSocket:
    """Listens on the socket in this folder; one that a killed Kaiwo left behind is replaced."""

    def __init__(self, home: str) -> None:
        self._path = os.path.join(home, SOCKET)
        self._home = home
        self.listener = socket.socket(socket.AF_UNIX)
        try:
            self._inode = self._bind()
            self.listener.listen(512)
            self.listener.setblocking(False)
        except OSError as error:
            self.listener.close()
            way_out = "make the folder writable, or name one on a local file system with KAIWO_HOME"
            raise ClusterError(f"cannot listen on {self._path} ({error.strerror}); {way_out}") from error
        except BaseException:
            self.listener.close()
            raise

    def remove(self) -> None:
        """Remove the file, unless another Kaiwo has replaced it."""
        with contextlib.suppress(OSError):
            if os.lstat(self._path).st_ino == self._inode:
                os.unlink(self._path)

    def _bind(self) -> int:
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISSOCK(os.lstat(self._path).st_mode):
                raise ClusterError(f"{self._path} is not a socket; remove it, and start Kaiwo again")
            os.unlink(self._path)
        os.fchmod(self.listener.fileno(), 0o600)  # before it has a name, so that it never has another mode
        # Through the folder's descriptor: a socket path is limited to 107 bytes, and a home may be deeper.
        at = os.open(self._home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.listener.bind(f"/proc/self/fd/{at}/{SOCKET}")
        finally:
            os.close(at)
        return os.lstat(self._path).st_ino
