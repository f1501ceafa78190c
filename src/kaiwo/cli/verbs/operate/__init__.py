"""Verbs for administrators: nodes, reservations, manifests, partitions, agents."""
