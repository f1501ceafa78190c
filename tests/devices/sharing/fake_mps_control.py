#!/usr/bin/env -S python3 -I -S
"""Stands in for nvidia-cuda-mps-control where there is no NVIDIA GPU: the same words, the same files, no GPU.

The real one is driven by `bench.gpu` on a machine that has one.
"""

import os
import socket
import sys

PIPES = os.environ["CUDA_MPS_PIPE_DIRECTORY"]
CONTROL = os.path.join(PIPES, "control")
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
    while True:
        caller, _ = listener.accept()
        word = caller.recv(4096).decode().strip()
        if word == "environment":
            caller.sendall(os.environ["CUDA_VISIBLE_DEVICES"].encode())
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
    caller.sendall(sys.stdin.readline().encode())
    print(caller.recv(4096).decode(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(become_daemon() if sys.argv[1:] == ["-d"] else ask())
