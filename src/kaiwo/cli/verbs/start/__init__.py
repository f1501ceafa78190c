"""Verbs that start, install and check Kaiwo."""
