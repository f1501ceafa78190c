"""How long a list and a watch of 100,000 pods take to read, and how much memory they leave.

In:    pods as an API server writes them, about 6 KB each with managed fields, status and volumes that Kaiwo does not
       read: 300 owners in five kinds, half of the pods bound. They are made while the clock stands still.
Out:   seconds for the list, seconds for a watch that changes every one of them, and the peak memory of the process.
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Iterator

from kaiwo.clusters.kubernetes.client.resource import Resource
from kaiwo.clusters.kubernetes.decode.pod_decoder import CachedPod, Key, PodDecoder
from kaiwo.clusters.kubernetes.decode.wire_objects import Pod

PODS, PAGE, OWNERS = 100_000, 500, 300
MAX_S, MAX_MB = 5.0, 150.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--pods", type=int, default=PODS)
    options = parser.parse_args()
    result = measure(options.pods)
    print(json.dumps(result, indent=None if options.json else 2))
    missed = []
    if result["list_s"] + result["watch_s"] > MAX_S:
        missed.append(f"list and watch took {result['list_s'] + result['watch_s']:.1f} s, {MAX_S} are allowed")
    if result["peak_rss_mb"] > MAX_MB:
        missed.append(f"peak_rss_mb is {result['peak_rss_mb']}, {MAX_MB} are allowed")
    for line in missed:
        print(line, file=sys.stderr)
    return 1 if missed else 0


def measure(pods: int) -> dict[str, float]:
    reader, decoder = Resource[Pod]("/api/v1/pods", Pod), PodDecoder()
    there: dict[Key, CachedPod] = {}
    list_ns = watch_ns = size = 0
    for page in pages(pods):
        size += len(page)
        began = time.perf_counter_ns()
        items = reader.read_page(page).items or ()
        for item in items:
            seen = decoder.decode(item)
            there[seen.key] = seen
        list_ns += time.perf_counter_ns() - began
    for line in lines(pods):
        began = time.perf_counter_ns()
        found = reader.read_line(line)
        assert found is not None
        assert isinstance(found.object, Pod)
        seen = decoder.decode(found.object)
        there[seen.key] = seen
        watch_ns += time.perf_counter_ns() - began
    assert len(there) == pods
    assert sum(bool(seen.node) for seen in there.values()) == pods  # the watch bound the other half
    return {
        "pods": pods,
        "bytes_a_pod": size // pods,
        "list_s": round(list_ns / 1e9, 2),
        "watch_s": round(watch_ns / 1e9, 2),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


def pages(pods: int) -> Iterator[bytes]:
    """A list in pages."""
    for start in range(0, pods, PAGE):
        items = b",".join(write_pod(number, number % 2 == 0) for number in range(start, min(start + PAGE, pods)))
        yield b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[' + items + b"]}"


def lines(pods: int) -> Iterator[bytes]:
    """Every pod changes once."""
    for number in range(pods):
        yield b'{"type":"MODIFIED","object":' + write_pod(number, True) + b"}"


def write_pod(number: int, is_bound: bool) -> bytes:
    """One pod as the server writes it."""
    owner = number % OWNERS
    spot = f',"nodeName":"node-{number % 1000}"' if is_bound else ""
    phase = "Running" if is_bound else "Pending"
    words = {
        "name": f"train-{owner}-{number:06d}", "uid": f"{number:08x}-1111-4222-8333-{number:012x}", "owner": owner,
        "version": 1000 + number, "gpus": 1 << owner % 4, "index": number // OWNERS, "spot": spot, "phase": phase,
        "space": f"team-{owner % 20}", "address": f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
    }  # fmt: skip
    return (_TEMPLATE % (words | {"kubelet": _KUBELET_TEMPLATE % words if is_bound else ""})).encode()


def _template() -> str:
    fields = {f"f:field{index}": {f"f:inner{part}": {} for part in range(4)} for index in range(18)}
    managed = [
        {"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "fieldsV1": fields},
        {"manager": "kubelet", "operation": "Update", "apiVersion": "v1", "subresource": "status", "fieldsV1": fields},
    ]
    env = [{"name": f"VARIABLE_{index}", "value": f"value-{index}"} for index in range(12)]
    mount = {
        "name": "kube-api-access-UID",
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
        "readOnly": True,
    }
    limits = {"cpu": "8", "memory": "64Gi", "amd.com/gpu": "GPUS"}
    container = {
        "name": "main", "image": "registry.example/train:1", "command": ["python", "train.py"], "env": env,
        "resources": {"limits": limits, "requests": limits}, "volumeMounts": [mount],
        "terminationMessagePath": "/dev/termination-log", "imagePullPolicy": "IfNotPresent",
    }  # fmt: skip
    toleration = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train-OWNER", "uid": "job-OWNER", "controller": True}
    pod = {
        "metadata": {
            "name": "NAME", "generateName": "train-OWNER-", "namespace": "SPACE", "uid": "UID",
            "resourceVersion": "VERSION", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "batch.kubernetes.io/job-name": "train-OWNER", "batch.kubernetes.io/controller-uid": "job-OWNER",
                "batch.kubernetes.io/job-completion-index": "INDEX", "app": "train", "team": "SPACE",
            },
            "annotations": {
                "batch.kubernetes.io/job-completion-index": "INDEX", "kaiwo.ai/queue": "SPACE",
                "example.com/long": "x" * 300,
            },
            "ownerReferences": [owner], "managedFields": managed,
        },
        "spec": {
            "containers": [container], "schedulerName": "kaiwo-scheduler", "priority": 0, "restartPolicy": "Never",
            "tolerations": [toleration, toleration | {"key": "node.kubernetes.io/unreachable"}],
            "volumes": [{"name": "kube-api-access-UID", "projected": {"sources": [{"configMap": {"name": "ca"}}]}}],
            "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "securityContext": {}, "SPOT": 1,
        },
        "status": {"phase": "PHASE", "conditions": [condition] * 4, "qosClass": "Guaranteed", "KUBELET": 1},
    }  # fmt: skip
    text = json.dumps(pod, separators=(",", ":")).replace("%", "%%")
    for word in ("NAME", "UID", "OWNER", "VERSION", "GPUS", "INDEX", "PHASE", "SPACE"):
        text = text.replace(word, f"%({word.lower()})s")
    return text.replace(',"SPOT":1', "%(spot)s").replace(',"KUBELET":1', "%(kubelet)s")


def _kubelet_template() -> str:
    """What the kubelet adds to the status of a pod that runs."""
    limits = {"cpu": "8", "memory": "64Gi", "amd.com/gpu": "GPUS"}
    container = {
        "name": "main", "state": {"running": {"startedAt": "2026-01-01T00:00:07Z"}}, "lastState": {}, "ready": True,
        "restartCount": 0, "image": "registry.example/train:1", "imageID": "registry.example/train@sha256:" + "0a" * 32,
        "containerID": "containerd://UID", "started": True, "allocatedResources": limits,
        "resources": {"limits": limits, "requests": limits},
        "user": {"linux": {"uid": 0, "gid": 0, "supplementalGroups": [0]}},
    }  # fmt: skip
    status = {
        "containerStatuses": [container], "startTime": "2026-01-01T00:00:02Z", "observedGeneration": 1,
        "hostIP": "ADDRESS", "hostIPs": [{"ip": "ADDRESS"}], "podIP": "ADDRESS", "podIPs": [{"ip": "ADDRESS"}],
    }  # fmt: skip
    text = "," + json.dumps(status, separators=(",", ":"))[1:-1]
    for word in ("UID", "GPUS", "ADDRESS"):
        text = text.replace(word, f"%({word.lower()})s")
    return text


_TEMPLATE, _KUBELET_TEMPLATE = _template(), _kubelet_template()

if __name__ == "__main__":
    sys.exit(main())
