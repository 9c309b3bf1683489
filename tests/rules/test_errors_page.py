"""docs/errors.md lists every message of the source, each with what to do."""

from __future__ import annotations

import ast

from tests.rules.source import PACKAGE, python_files, tree
from tools.errors_page import PAGE, advice, cure, endings, messages, page

DYNAMIC = 12  # messages that another library or another function of ours has made: they cannot be listed


def test_the_page_is_that_of_the_source() -> None:
    assert PAGE.read_text() == page(), "a message has changed: run python -m tools.errors_page"


def test_every_message_says_what_to_do() -> None:
    """Itself, or by a line of tools/errors_cures.txt."""
    assert not [message for message in messages() if not (advice(message.text) or cure(message.text))]


def test_no_message_is_missed() -> None:
    """Every error that the source makes is of a class that the page knows, and has a message that can be listed."""
    listed = {message.text for message in messages()}
    assert len(listed) > 500
    raised = [
        node
        for path in python_files(PACKAGE)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in endings() and node.args
    ]
    names = [ast.unparse(node.args[-1]) for node in raised if isinstance(node.args[-1], ast.Call | ast.Name | ast.Attribute)]
    assert len(names) <= DYNAMIC + len([name for name in names if name.startswith("_")]), names
