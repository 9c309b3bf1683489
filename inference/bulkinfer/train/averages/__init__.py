"""Averages of weights: one that follows a run (--ema), and one of its checkpoints (bulkinfer average)."""
