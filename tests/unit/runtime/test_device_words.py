"""device_words.py: every word leads to a provider that there is."""

from __future__ import annotations

from bulkinfer.runtime.device_words import DEVICE_WORDS
from bulkinfer.runtime.providers import PROVIDERS


def test_words_mean_providers_and_are_none_themselves() -> None:
    assert set(DEVICE_WORDS.values()) <= set(PROVIDERS)
    assert not set(DEVICE_WORDS) & set(PROVIDERS)
