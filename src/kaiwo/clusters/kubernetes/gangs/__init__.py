"""Gangs from the objects that people submit to Kubernetes: which pods start together, and how many must.

Pure: JSON objects in, gangs out. `GangTracker` tracks pods and owners, and returns which gangs an event touched.
"""
