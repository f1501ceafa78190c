"""`make kube`: a real control plane on this machine with virtual GPU nodes, scheduled by Kaiwo.

In:    how many nodes.   Out: lines to paste; Ctrl-C takes all of it down.
"""

import argparse
import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.conftest import ROOT
from tests.controlplane.plane import MissingError, Plane, find_programs
from tests.controlplane.virtual import make_nodes_for, start_kubelets

NODES = 8


def main() -> int:
    parser = argparse.ArgumentParser(prog="make kube", description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES, help="virtual nodes with 8 MI300X each")
    parser.add_argument("--port", type=int, default=7600, help="of Kaiwo's API and page; 0: any free one")
    parser.add_argument("--folder", help="where its files go, instead of a folder in the cache; it is emptied")
    options = parser.parse_args()
    try:
        programs = find_programs("kwok")
    except MissingError as error:
        print(error, file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kaiwo" / "kube"
    folder = Path(options.folder or default)
    shutil.rmtree(folder, ignore_errors=True)
    plane = Plane(folder, programs)
    try:
        start(plane, options.nodes)
        return schedule(plane, options.port)
    except KeyboardInterrupt:
        return 0
    finally:
        plane.stop()


def start(plane: Plane, nodes: int) -> None:
    """Everything but Kaiwo."""
    began = time.monotonic()
    plane.start()
    plane.start_controllers()
    plane.kubectl("apply", "--server-side", "-f", str(ROOT / "deploy" / "crds"))
    start_kubelets(plane)
    asyncio.run(make_nodes_for(plane, nodes))
    print(f"A Kubernetes control plane with {nodes} virtual nodes is up after {time.monotonic() - began:.0f} s.")
    print("In another terminal:")
    print(f"  export KUBECONFIG={plane.kubeconfig} PATH={plane.programs}:$PATH KAIWO_HOME={plane.folder / 'home'}")
    print("  kubectl get nodes")
    print("  kubectl apply -f examples/kubernetes-job.yaml", flush=True)


def schedule(plane: Plane, port: int) -> int:
    """Kaiwo in the foreground, until Ctrl-C."""
    kaiwo = subprocess.Popen(
        [sys.executable, "-m", "kaiwo.cli.main", "scheduler", "--kubeconfig", plane.kubeconfig, "--port", str(port)],
        env=os.environ | {"KAIWO_HOME": str(plane.folder / "home")},
    )
    try:
        return kaiwo.wait()
    except (KeyboardInterrupt, SystemExit):
        kaiwo.terminate()
        return kaiwo.wait(10)


if __name__ == "__main__":
    sys.exit(main())
