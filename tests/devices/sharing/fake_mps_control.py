#!/usr/bin/env -S python3 -I -S
"""Stands in for nvidia-cuda-mps-control where there is no NVIDIA GPU: the same words, the same files, no GPU.

The real one is driven by `bench.gpu` on a machine that has one.
"""

import os
import socket
import sys

PIPES = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
CONTROL = os.path.join(PIPES, "control")
SERVER = "4711"
PID_FILE = os.path.join(PIPES, "nvidia-cuda-mps-control.pid")


def become_daemon() -> int:
    if os.path.exists(os.path.join(PIPES, "..", "broken")):
        print("An instance of this daemon is already running", file=sys.stderr)
        return 1
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(CONTROL)
    listener.listen(8)
    if os.fork():
        return 0
    os.setsid()
    if os.fork():
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    with open(PID_FILE, "w") as file:
        file.write(str(os.getpid()))
    os.chmod(PID_FILE, 0o666)  # as the real one does
    settings: dict[str, str] = {}
    while True:
        caller, _ = listener.accept()
        word = caller.recv(4096).decode().strip()
        for line in word.splitlines():
            if line.startswith("set_"):
                name, _, value = line.rpartition(" ")
                settings[name] = value
        answers = {
            "environment": os.environ["CUDA_VISIBLE_DEVICES"],
            "arguments": " ".join(sys.argv[1:]),
            "settings": "\n".join(f"{name} {settings[name]}" for name in sorted(settings)),
            "get_server_list": SERVER if os.path.exists(os.path.join(PIPES, "..", "serving")) else "",
        }
        caller.sendall(answers.get(word, "").encode())
        caller.close()
        if word == "quit":
            os.unlink(PID_FILE)
            os._exit(0)


def ask() -> int:
    caller = socket.socket(socket.AF_UNIX)
    try:
        caller.connect(CONTROL)
    except OSError:
        print("Cannot find MPS control daemon process")
        return 1
    caller.sendall(sys.stdin.read().encode())
    print(caller.recv(4096).decode(), end="")
    return 0


def main(*words: str) -> int:
    if words == ("--help",):
        print("OPTIONS:\n  -d,--daemon\n  -M,--multiuser-server")
        return 0
    return become_daemon() if words[-1:] == ("-d",) else ask()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
