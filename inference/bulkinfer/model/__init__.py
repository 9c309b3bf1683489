"""A network on disk: card, recipe, graphs, golden outputs."""
