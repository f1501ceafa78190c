"""Tenants as a kubelet starts them: users of their own, in namespaces of their own, with the pipes mounted read-only.

In:    a machine with an NVIDIA GPU and its MPS daemon, as root.   Out: what two such tenants get side by side.
Never: starts a real container: the namespaces and the mount are those of one, the image is the machine itself.
"""

import subprocess
import sys
import time
from typing import Any

from bench._gpu_tenants import environment, finish
from kaiwo.devices.sharing.mps import PIPES, MpsDaemon, find_mps_control
from kaiwo.devices.sharing.share_types import Grant

FIRST_UID, SECOND_UID = 1000, 2000
SECONDS, START_S = 3.0, 4.0
MOUNTED = "/mnt"
# Nothing of this is seen outside: the namespaces end with the tenant.
ENTER = (
    f'mount -t tmpfs none /dev/shm && mount --bind "$0" {MOUNTED} && mount -o remount,bind,ro {MOUNTED} && exec "$@"'
)
COMMANDS = ("set_default_active_thread_percentage 100", "get_server_list", "quit")


def start_container(grant: Grant, uid: int, *words: str) -> "subprocess.Popen[str]":
    pipes = grant.environment["CUDA_MPS_PIPE_DIRECTORY"]
    env = environment(grant, CUDA_MPS_PIPE_DIRECTORY=MOUNTED, TENANT_UID=str(uid))
    enter = [
        "unshare",
        "--mount",
        "--ipc",
        "--uts",
        "--net",
        "--pid",
        "--fork",
        "--mount-proc",
        "sh",
        "-c",
        ENTER,
        pipes,
    ]
    command = [*enter, sys.executable, "-m", "bench._gpu_tenant", *words]
    return subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def two_users(small: Grant, large: Grant, blocks: int) -> dict[str, Any]:
    """Two users compute in the same seconds, then the first one takes all the memory that it can get."""
    begin = time.time() + START_S
    words = ("spin", str(begin), str(begin + SECONDS), str(blocks))
    tenants = [start_container(grant, uid, *words) for grant, uid in ((small, FIRST_UID), (large, SECOND_UID))]
    answers = [finish(tenant) for tenant in tenants]
    if bad := [answer for answer in answers if "error" in answer or answer.get("is_late", True)]:
        return {"error": bad[0].get("error", "a tenant came too late"), "answers": answers}
    rates = [answer["launches_per_s"] for answer in answers]
    filled = finish(start_container(small, FIRST_UID, "fill", str(2 * small.held[0].mib)))
    return {
        "uids": [FIRST_UID, SECOND_UID],
        "launches_per_s": [round(rate, 1) for rate in rates],
        "ratio": round(rates[0] / rates[1], 4),
        "limit_mib": small.held[0].mib,
        "got_mib": filled.get("got_mib"),
    }


def command_service(daemon: MpsDaemon) -> tuple[bool, str]:
    """As a user whose folder modes do not stop it: what the daemon itself refuses."""
    servers = daemon.servers()
    pid = daemon.pid
    kill = f"import os; os.kill({servers[0] if servers else pid}, 9)"
    killed = subprocess.run([sys.executable, "-c", kill], user=SECOND_UID, capture_output=True, text=True, check=False)
    env = {"CUDA_MPS_PIPE_DIRECTORY": MOUNTED, "PATH": "/usr/bin:/bin"}
    enter = ["unshare", "--mount", "sh", "-c", ENTER, f"{daemon.folder}/{PIPES}"]
    drop = ["setpriv", f"--reuid={SECOND_UID}", f"--regid={SECOND_UID}", "--clear-groups"]
    said = [
        subprocess.run(
            [*enter, *drop, find_mps_control()],
            input=f"{command}\n",
            env=env,
            capture_output=True,
            text=True,
            check=False,
        ).stdout.strip()
        for command in COMMANDS
    ]
    is_held = daemon.pid == pid and daemon.servers() == servers and killed.returncode != 0
    return is_held, f"{killed.stderr.strip().splitlines()[-1:]}; {said}"
