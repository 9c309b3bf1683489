"""The network of a run: by name, built, frozen in part, recomputed, compiled."""
