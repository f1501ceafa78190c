"""A cluster whose state Kaiwo keeps itself: what `local` and `simulated` share."""
