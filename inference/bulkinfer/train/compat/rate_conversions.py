"""As conversions.py: where the learning rate drops, and options that come as dictionaries."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import yaml

from bulkinfer.errors import UsageError
from bulkinfer.train.compat.conversions import Context, Options, _typed, _typed_all, decay_of_batch
