"""Verbs that submit, follow and change workloads."""
