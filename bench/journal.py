"""What the journal costs: per event in batches of 1,000 pod events, and per small cycle.

In:    events with names as unlike each other as real ones.   Out: microseconds and bytes, from files on this disk.
Never: leaves out the compression, the checksum or the write.
"""

import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

from kaiwo.history import Base, Cycle, Journal, Setting
from kaiwo.model.events import Event, PodChanged, WorkloadChanged
from kaiwo.model.gpus.gpu import Share
from kaiwo.model.plan import Plan, Start
from kaiwo.model.request import Request
from kaiwo.model.workload import Pod, Role, Workload

BATCHES, BATCH_EVENTS, CYCLES, BASE_EVENTS = 200, 1000, 5000, 100_000
TARGETS = {"us_per_event": 3.0, "bytes_per_event": 150.0, "cycle_us": 50.0}
SETTING = Setting("bench", plugins=tuple((f"plugin-{index}", "1.0.0") for index in range(15)))
draw = random.Random(1)


def main() -> int:
    result = measure()
    missed = [name for name, target in TARGETS.items() if result[name] >= target]
    if "--json" in sys.argv:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:18} {value:>12,.2f}" + (f"   (below {TARGETS[name]:g})" if name in TARGETS else ""))
    for name in missed:
        print(f"{name} is {result[name]}, the target is below {TARGETS[name]:g}", file=sys.stderr)
    return 1 if missed else 0


def measure() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder, Journal(folder, segment_bytes=2**30) as journal:
        base = Base(tuple(workload_event() for _ in range(BASE_EVENTS)))
        base_us = took_us(lambda: journal.base(base))
        base_bytes = _size(journal)
        batch_us = [batch_took_us(journal) for _ in range(BATCHES)]
        event_bytes = _size(journal) - base_bytes
        cycle_us = [cycle_took_us(journal) for _ in range(CYCLES)]
        rebuild_us = took_us(lambda: sum(1 for _ in journal.entries_until(journal.newest)))
        list_us = took_us(lambda: journal.cycles(50))
    us_per_event = statistics.median(batch_us) / BATCH_EVENTS
    return {
        "events_per_s": round(1e6 / us_per_event),
        "us_per_event": round(us_per_event, 3),
        "bytes_per_event": round(event_bytes / (BATCHES * BATCH_EVENTS), 1),
        "cycle_us": round(statistics.median(cycle_us), 1),
        "base_us_per_event": round(base_us / BASE_EVENTS, 3),
        "base_bytes_per_event": round(base_bytes / BASE_EVENTS, 1),
        "read_us_per_event": round(rebuild_us / (BASE_EVENTS + BATCHES * BATCH_EVENTS), 3),
        "list_50_cycles_us": round(list_us, 1),
    }


def took_us(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1e6


def batch_took_us(journal: Journal) -> float:
    events = tuple(pod_event() for _ in range(BATCH_EVENTS))

    def write() -> None:
        journal.batch(events)
        journal.flush()

    return took_us(write)


def cycle_took_us(journal: Journal) -> float:
    """One event came, one pod was started: the commonest cycle there is."""
    event = pod_event()
    plan = Plan((Start(event.pod.workload, event.pod.name, event.pod.node, event.pod.devices),), steps=1)

    def write() -> None:
        journal.batch((event,))
        journal.cycle(Cycle.of(plan, SETTING, number=journal.next_number, now_s=1, wall_ms=1, took_us=1))

    return took_us(write)


def pod_event() -> PodChanged:
    share = Share(f"0000:{draw.randrange(256):02x}:00.0", draw.choice((1000, 500, 250)), draw.choice((196608, 4000)))
    return PodChanged(
        Pod(
            f"team-{draw.randrange(12)}/train-{draw.getrandbits(40):010x}",
            f"worker-{draw.randrange(8)}",
            f"gpu-node-{draw.randrange(1000):04d}",
            devices=(share,),
            cpu_milli=1000 * draw.randrange(1, 64),
            memory_mib=1024 * draw.randrange(1, 128),
            since_s=1_700_000_000 + draw.randrange(10**6),
        )
    )


def workload_event() -> Event:
    request = Request(4000, 32768, draw.choice((1, 2, 4, 8)))
    name = f"team-{draw.randrange(12)}/train-{draw.getrandbits(40):010x}"
    user, submitted_s = f"user-{draw.randrange(200)}", 1_700_000_000 + draw.randrange(10**6)
    return WorkloadChanged(
        Workload(name, (Role(request),), f"team-{draw.randrange(12)}", user, submitted_s=submitted_s)
    )


def _size(journal: Journal) -> int:
    return sum(path.stat().st_size for path in journal.path.glob("*.journal"))


if __name__ == "__main__":
    sys.exit(main())
