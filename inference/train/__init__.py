"""Training: networks, data, optimisers, the loop and its checkpoints."""
