"""Discrete-event runs of the shipped `decide` on a virtual clock: traces in, figures out."""
