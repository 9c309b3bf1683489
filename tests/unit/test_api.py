"""The public API: sorted, whole, documented, loaded when it is used."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import bulkinfer
import pytest

PACKAGE = Path(bulkinfer.__file__)
LIMIT_S = 0.05  # of `import bulkinfer`, in seconds of processor time


def imported_for_types() -> dict[str, str]:
    """The names that editors and mypy see, and where they are from: the imports under TYPE_CHECKING."""
    (block,) = [node for node in ast.parse(PACKAGE.read_text()).body if isinstance(node, ast.If)]
    assert ast.unparse(block.test) == "TYPE_CHECKING"
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def in_fresh_process(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    return done.stdout.strip()


def test_the_list_is_sorted_and_whole() -> None:
    assert bulkinfer.__all__ == sorted(bulkinfer.__all__)
    assert dir(bulkinfer) == bulkinfer.__all__
    errors = {name for name in bulkinfer.__all__ if name.endswith("Error")}
    assert set(bulkinfer.__all__) == {"__version__", *errors, *bulkinfer._LAZY}
    assert imported_for_types() == bulkinfer._LAZY, "what is typed is what is loaded"


@pytest.mark.parametrize("name", sorted(set(bulkinfer.__all__) - {"__version__"}))
def test_every_name_can_be_used_and_says_what_it_is(name: str) -> None:
    value: Any = getattr(bulkinfer, name)
    assert callable(value)
    assert value.__name__ == name
    assert (inspect.getdoc(value) or "").strip()
    if inspect.isfunction(value):
        hints = value.__annotations__
        assert set(hints) == {*inspect.signature(value).parameters, "return"}, "typed"
        assert "Raises" in (inspect.getdoc(value) or ""), "the errors are named"


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'bulkinfer' has no attribute 'lunch'"):
        _ = bulkinfer.lunch
    with pytest.raises(ImportError, match="cannot import name 'lunch'"):
        exec("from bulkinfer import lunch")


def test_the_version_is_a_literal() -> None:
    assert re.search(r'^__version__ = "[\d.]+"$', PACKAGE.read_text(), re.MULTILINE), "setuptools reads it without importing"


def test_importing_loads_the_errors_and_nothing_else() -> None:
    loaded = in_fresh_process("import sys; import bulkinfer; print(*sorted(sys.modules))").split()
    assert [name for name in loaded if name.startswith("bulkinfer")] == ["bulkinfer", "bulkinfer.errors"]
    known = set(sys.stdlib_module_names)
    third_party = {name.partition(".")[0] for name in loaded} - known - {"bulkinfer", "__main__", "sitecustomize"}
    started_by_site = set(in_fresh_process("import sys; print(*sys.modules)").split())
    assert third_party <= {name.partition(".")[0] for name in started_by_site}, "numpy, pyarrow and others wait for their use"


def test_importing_takes_no_time() -> None:
    code = "import time; start = time.process_time(); import bulkinfer; print(time.process_time() - start)"
    assert min(float(in_fresh_process(code)) for _ in range(3)) < LIMIT_S


def test_a_function_is_not_hidden_by_the_room_of_its_name() -> None:
    code = """
import importlib, types
import bulkinfer
for module in ("bulkinfer.launch.step_queue", "bulkinfer.launch.launcher", "bulkinfer.train.options"):
    importlib.import_module(module)
assert not {"launch", "train"} & vars(bulkinfer).keys()
from bulkinfer import launch
assert isinstance(launch, types.FunctionType)
assert launch is bulkinfer.launch
from bulkinfer.launch import launcher
assert launcher.launch is launch
"""
    assert in_fresh_process(code) == ""


def test_the_rooms_can_be_imported_all_the_same() -> None:
    room = importlib.import_module("bulkinfer.launch")
    assert sys.modules["bulkinfer.launch"] is room
    assert inspect.isfunction(bulkinfer.launch)
