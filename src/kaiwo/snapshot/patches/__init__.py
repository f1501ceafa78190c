"""Apply events about nodes, topologies, queues and workloads to the cluster state: one file for each kind of object."""
