"""Write a file atomically and durably: after a crash it has the old or the new contents."""

import os


def write_atomically(path: str, data: bytes) -> None:
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
