"""The config class of each command."""

from __future__ import annotations

from bulkinfer.__main__ import COMMANDS

from tools.reference_pages import command

CONFIGS = {name: command(name).config_class for name in COMMANDS}
