"""Verbs that show the state of the cluster."""
