"""Find out which user of this machine is at the other end of a connection, before anything secret is sent.

In:    a connected socket.   Out: the user's ID; NO_USER when nobody can be named.
Why:   any user may listen on a port that Kaiwo used before it was killed, and would be sent the next request.
"""

import socket
import struct

NO_USER = -1
_LISTENING = "0A"
_ANY_ADDRESS = {"00000000", "0" * 32}
_PEER_CREDENTIALS = struct.Struct("3i")  # process, user, group


def user_behind_socket(connection: socket.socket) -> int:
    """The user whose process listens on this Unix socket, as the kernel knows it."""
    option = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    _, user, _ = _PEER_CREDENTIALS.unpack(option)
    return int(user)


def users_behind_port(connection: socket.socket) -> set[int]:
    """The users who listen where this TCP connection ends; on loopback only.

    More than one: an address of its own and all addresses can be listened on at once, so all of them must be trusted.
    """
    address, port = connection.getpeername()[:2]
    names = _ANY_ADDRESS | _kernel_names(address)
    return {user for name, at, user in _listeners() if at == port and name in names} or {NO_USER}


def is_on_loopback(connection: socket.socket) -> bool:
    address = connection.getpeername()[0]
    return address == "::1" or address.removeprefix("::ffff:").startswith("127.")


def _kernel_names(address: str) -> set[str]:
    """How /proc/net/tcp and tcp6 write this address: words of 32 bits in the machine's byte order."""
    if ":" in address:
        packed = socket.inet_pton(socket.AF_INET6, address)
        return {_words(packed)}
    packed = socket.inet_pton(socket.AF_INET, address)
    return {_words(packed), _words(b"\0" * 10 + b"\xff\xff" + packed)}


def _words(packed: bytes) -> str:
    return "".join(f"{word:08X}" for word in struct.unpack(f"={len(packed) // 4}I", packed))


def _listeners() -> list[tuple[str, int, int]]:
    """Address, port and user of every listening TCP socket of this machine."""
    found = []
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(path, encoding="ascii") as file:
                lines = file.readlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if len(fields) > 7 and fields[3] == _LISTENING:
                name, _, port = fields[1].partition(":")
                found.append((name, int(port, 16), int(fields[7])))
    return found
