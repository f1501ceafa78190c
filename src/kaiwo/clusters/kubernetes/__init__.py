"""A Kubernetes cluster: pods, nodes and queues as events, plans as Bindings and Evictions.

It keeps nothing that the API server does not have: everything is rebuilt from it at the start.
"""
