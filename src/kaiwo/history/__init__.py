"""The journal: the events that changed the cluster state and the plans, so that any cycle can be rebuilt."""

from kaiwo.history.journal_entries import Base, Batch, Cycle, CycleHead, Entry, Setting
from kaiwo.history.journal_reader import JournalReader
from kaiwo.history.journal_writer import Journal

__all__ = ["Base", "Batch", "Cycle", "CycleHead", "Entry", "Journal", "JournalReader", "Setting"]
