"""The keys with which the scheduler signs grants, and the signatures of pods that run already."""
