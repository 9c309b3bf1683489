"""One update of the weights: passes, gradients, optimiser, learning rate, rounding."""
