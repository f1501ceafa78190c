"""A Kubernetes cluster: pods, nodes and queues as events, plans as Bindings and Evictions.

It stores nothing outside the API server: at the start, everything is rebuilt from there.
"""
