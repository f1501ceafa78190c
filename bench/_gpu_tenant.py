"""A tenant of a GPU: one process that does one thing there and says how it went, as one line of JSON.

python -m bench._gpu_tenant spin BEGIN END BLOCKS | allocate MIB... | fill MIB | fault | work

With TENANT_UID in the environment it becomes that user first: other users can't read every checkout.
"""

import contextlib
import json
import os
import select
import sys
import time
from typing import Any

from bench._cuda import Context, Cuda, CudaError

STEP_MIB = 256


def main(what: str, *words: str) -> int:
    if uid := int(os.environ.get("TENANT_UID", "0")):
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    result: dict[str, Any] = {"pid": os.getpid()}
    try:
        cuda = Cuda()
        result["devices"] = cuda.devices()
        context = cuda.open(0)
        result["units"] = context.units
        result["free_mib"], result["total_mib"] = context.memory_mib()
        result |= DEEDS[what](context, *words)
    except CudaError as error:
        result["error"] = error.name
    print(json.dumps(result), flush=True)
    return 0


def spin(context: Context, begin: str, end: str, blocks: str) -> dict[str, Any]:
    """Launches a second between two moments that all tenants share."""
    context.spin(time.time() + 0.2, int(blocks))
    is_late = time.time() > float(begin)
    while time.time() < float(begin):
        time.sleep(0.001)
    done, took_s = context.spin(float(end), int(blocks))
    return {"launches_per_s": done / took_s, "is_late": is_late}


def allocate(context: Context, *sizes_mib: str) -> dict[str, Any]:
    """Each size by itself: `ok`, or the driver's word."""
    answers = {}
    for size in sizes_mib:
        try:
            context.free(context.allocate(int(size) << 20))
            answers[size] = "ok"
        except CudaError as error:
            answers[size] = error.name
    return {"allocated": answers}


def fill(context: Context, most_mib: str) -> dict[str, Any]:
    """How much it gets in small pieces, up to a bound."""
    got_mib = 0
    with contextlib.suppress(CudaError):
        while got_mib < int(most_mib):
            context.allocate(STEP_MIB << 20)
            got_mib += STEP_MIB
    return {"got_mib": got_mib}


def fault(context: Context) -> dict[str, Any]:
    context.fault()
    return {}


def work(context: Context) -> dict[str, Any]:
    """Compute until standard input ends; a first line says that it has begun."""
    print(json.dumps({"begun": True}), flush=True)
    rounds = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        context.spin(time.time() + 0.05, context.units)
        rounds += 1
    return {"rounds": rounds}


DEEDS: dict[str, Any] = {"spin": spin, "allocate": allocate, "fill": fill, "fault": fault, "work": work}

if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
