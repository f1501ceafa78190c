"""Kueue beside us: it decides when work may run and on which kind of node, we decide where exactly.

What it decided reaches us on the pods: node selectors for its flavors and topology domains, and gates until it has
decided. Its Workloads are read for one thing: to say why a pod waits at one of its gates. Nothing of Kueue is written.
"""
