"""On PYTHONPATH of a launch under test: Python imports this first of all, in the launcher and in its workers."""

from tests.faults.wrapping import install_from_environment

install_from_environment()
