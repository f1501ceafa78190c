"""A Kubernetes cluster: pods, nodes and queues as events, plans as Bindings and Evictions.

In:    an API server.   Out: the `Cluster` protocol.
Never: keeps what the API server does not: everything is rebuilt from it at the start.
"""
