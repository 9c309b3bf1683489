"""Whether a batch fits into memory at all: asked before a graph is made for it, which would take all memory, or minutes."""

from __future__ import annotations

from bulkinfer.errors import UsageError
from bulkinfer.host.memory import usable_memory
from bulkinfer.model.recipe import Recipe

_GIB = 1 << 30
# Bytes per value of a picture: five uint8 batches are the fewest of a launch (see num_batches of the loader), and the network
# computes with float32. What its layers need comes on top: that is not known before it runs.
_BYTES_PER_VALUE = 5 * 1 + 4


def require_batch_fits(batch_size: int, recipe: Recipe) -> None:
    """Raises UsageError if the input of the network alone, in batches of this size, takes more memory than there is."""
    memory, picture = usable_memory(), recipe.height * recipe.width * 3 * _BYTES_PER_VALUE
    if memory is not None and batch_size * picture > memory:
        most = memory // picture
        todo = f"give {most} or fewer" if most else "this network needs a machine with more memory"
        raise UsageError(
            f"--batch_size {batch_size}: pictures for its batches take {batch_size * picture / _GIB:,.1f} GiB, and there are "
            f"{memory / _GIB:.1f} GiB of memory: {todo}"
        )
