"""Ranks: the processes that share the updates of a run."""
