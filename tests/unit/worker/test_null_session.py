"""null_session.py: takes batches like a session."""

from __future__ import annotations

import numpy as np
import pytest
from bulkinfer.runtime.session import describe_proof, warm_up
from bulkinfer.worker.null_session import NoNetwork


def test_it_takes_batches_of_its_shape_and_gives_no_numbers() -> None:
    network = NoNetwork((4, 8, 6, 3))
    images = network.new_batch((4, 8, 6, 3))
    assert (images.shape, images.dtype) == ((4, 8, 6, 3), np.uint8)
    (output,) = network.run(images).values()
    assert output.shape == (4, 0)
    with pytest.raises(AssertionError, match="not the fixed shape"):
        network.run(images[:1])


def test_a_worker_can_warm_it_up_and_describe_it() -> None:
    network = NoNetwork((4, 8, 6, 3))
    assert warm_up(network, 2, 0.0) > 0
    assert "no network" in describe_proof(network.proof)
