"""The scheduler-extender protocol, for clusters that keep kube-scheduler.

In:    what kube-scheduler asks about one pod.   Out: which nodes have the GPUs for it, how good they are, and its
       Binding with the exact devices.
Never: judges what kube-scheduler judges itself: selectors, taints, CPU, memory. Only GPUs are ours here.
"""
