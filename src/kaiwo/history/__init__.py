"""The journal: what happened and what was decided, so that any cycle can be rebuilt.

In:    the events that changed the picture, and each cycle's plan.   Out: both again, in the order in which they came.
Never: decides, or knows how a picture is made.
"""

from kaiwo.history.journal_entries import Base, Batch, Cycle, CycleHead, Entry, Setting
from kaiwo.history.journal_reader import JournalReader
from kaiwo.history.journal_writer import Journal

__all__ = ["Base", "Batch", "Cycle", "CycleHead", "Entry", "Journal", "JournalReader", "Setting"]
