"""Write the pages of docs/reference/ that follow from the source: commands.md and options-<command>.md from the commands and
the config dataclasses, other-trainers.md from the table of other trainers' flags.

    python -m tools.reference_pages     # in the checkout

tests/rules/test_docs.py fails when a page is not that of the source. Headings, spellings and names of values are those of
--help.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "inference"))

from bulkinfer.__main__ import COMMANDS  # noqa: E402 (the package of this checkout, wherever the tool is started)
from bulkinfer.commands.flags import default_text  # noqa: E402
from bulkinfer.commands.help import operand_name, option_groups, spellings  # noqa: E402
from bulkinfer.commands.shell_scripts import SCRIPTS, config_class  # noqa: E402
from bulkinfer.train.compat.reference_flags import (  # noqa: E402
    LEFT_OUT,
    REFUSED,
    TRAINERS,
    Block,
    Row,
    blocks,
    rows,
)

FOLDER = ROOT / "docs" / "reference"
MADE = "This page is made from the source by `python -m tools.reference_pages`."
SPELLING = """## How options are written

- `--x-y` is `--x_y`.
- `--nox`, `--no-x`, `--no_x` and `--x False` all switch `--x` off.
- An option that takes several values takes them as several words or with commas: `--save topk logits`, `--save topk,logits`.
  Plain arguments are separated by blanks alone: a comma is part of a name.
- A value may start with `-`.
- `--flagfile FILE` reads options from a file, one on each line. Options behind it on the command line win.
- `--help` prints the options of a command, `--version` its version.
- Where a page below shows a plain argument, the word needs no option before it.

## Words to replace

In commands that documents, help and messages show, a word in capitals stands for something of yours:

| word | what you type |
|---|---|
| `PHOTOS` | a folder of pictures |
| `JOB` | a job: its results folder, its log folder, or the name of that folder |
| `RUN` | the folder of a training run; `logs/RUN` where runs lie in `logs/` |
| `FILE` | a file |
| `FOLDER` | a folder |
| `NAME` | a name, which the sentence around it explains |
| `N` | a number |
| `COMMAND` | a command of the table above |"""

TRAINERS_TITLE = "# Flags of other trainers"
TRAINERS_INTRODUCTION = """`bulkinfer train` and `bulkinfer validate` take the flags of four trainers of CNNs for Graphcore's
IPU, from [graphcore/examples](https://github.com/graphcore/examples): popart (`applications/popart/resnet`), poptorch
(`applications/pytorch/cnns/train`, `vision/cnns/pytorch`), tf1 (`applications/tensorflow/cnns/training`) and tf2
(`vision/cnns/tensorflow2`). [Training](../training.md#from-other-trainers) says how they work together.

- What is left out cannot change a result; a note says why it is left out.
- What is refused is an error that says why.
- Every other flag sets the options of the third column. Values that it does not name stay as they are.
- `--no-x` is `--x false`."""
TRAINERS_DEFAULTS = """What `--like TRAINER` takes, in its own flags: of the lines that apply, later ones win, and what is given
wins over all. Small data are pictures of about 32 x 32 pixels, large data those in class folders."""


@dataclass(frozen=True)
class Command:
    """A command: its config class, and the option that takes plain arguments (empty: none does)."""

    name: str
    config_class: type[Any]
    positional: str

    @property
    def shown(self) -> str:
        """The command as people type it."""
        return self.name if self.name in SCRIPTS else f"bulkinfer {self.name}"


def command(name: str) -> Command:
    """The command of a file in commands/. The option that takes plain arguments is named in its call of run_command."""
    module = importlib.import_module(f"bulkinfer.commands.{name}")
    assert module.__file__ is not None
    for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "run_command":
            words = {word.arg: word.value for word in node.keywords}
            positional = next((ast.literal_eval(words[key]) for key in ("positional", "first_word") if key in words), "")
            return Command(name, config_class(name), positional)
    raise AssertionError(f"commands/{name}.py does not call run_command, from which this page learns its plain arguments")


def pages() -> dict[str, str]:
    """All pages: name below docs/reference -> text."""
    made = {"commands.md": _commands_page(), "other-trainers.md": _trainers_page()}
    return made | {f"options-{name}.md": _options_page(command(name)) for name in COMMANDS}


def _commands_page() -> str:
    lines = ["# Commands", "", "Every command with its purpose, and how options are written. Each links to its options.", ""]
    lines += ["| command | what it does |", "|---|---|"]
    lines += [f"| [`{command(name).shown}`](options-{name}.md) | {_plain(doc)} |" for name, doc in COMMANDS.items()]
    also = "Every command also runs as `bulkinfer COMMAND` and as `python -m bulkinfer COMMAND`."
    return "\n".join([*lines, "", also, "", SPELLING, "", MADE, ""])


def _options_page(of: Command) -> str:
    doc = _plain(" ".join(str(of.config_class.__doc__).split()))
    lines = [f"# Options of {of.shown}", "", doc, "", "```text", f"{of.shown}{_arguments(of)} [options]", "```", ""]
    for group, fields in option_groups(of.config_class).items():
        lines += [f"## {group[0].upper()}{group[1:]}", ""]
        lines += ["| option | default | meaning |", "|---|---|---|", *map(_row, fields), ""]
    return "\n".join([*lines, "[How options are written](commands.md#how-options-are-written).", MADE, ""])


def _arguments(of: Command) -> str:
    """The plain arguments of a command, as its usage line shows them."""
    if not of.positional:
        return ""
    (field,) = [field for field in dataclasses.fields(of.config_class) if field.name == of.positional]
    return f" [{operand_name(field)}]"


def _row(field: dataclasses.Field[Any]) -> str:
    kind = "any of" if isinstance(field.default, tuple) else "one of"
    choices = field.metadata["choices"]
    legal = f" ({kind} {', '.join(f'`{choice}`' for choice in choices)})" if choices else ""
    default = f"`{default_text(field)}`" if default_text(field) else ""
    return f"| {', '.join(f'`{name}`' for name in spellings(field))} | {default} | {_plain(field.metadata['doc'])}{legal} |"


def _trainers_page() -> str:
    """The flags of other trainers, and what --like takes of each, from references.yml."""
    lines = [
        TRAINERS_TITLE,
        "",
        TRAINERS_INTRODUCTION,
        "",
        "## Flags",
        "",
        "| flag | of | here | remark |",
        "|---|---|---|---|",
    ]
    lines += [f"| `--{_dashed(row.flag)}` | {', '.join(row.of)} | {_here(row)} | {_remark(row)} |" for row in _by_name()]
    lines += ["", "## Defaults", "", TRAINERS_DEFAULTS, ""]
    for trainer in TRAINERS:
        lines += [f"### {trainer}", "", "| where | taken |", "|---|---|"]
        lines += [f"| {_where(block)} | {', '.join(_taken(block))} |" for block in blocks(trainer)] + [""]
    return "\n".join([*lines, MADE, ""])


def _by_name() -> list[Row]:
    """The rows by name, small letters and large ones together; a row that holds with --like alone comes behind the other."""
    return sorted(rows(), key=lambda row: (row.flag.lower(), row.with_like))


def _here(row: Row) -> str:
    """What a flag is here."""
    if row.kind in (LEFT_OUT, REFUSED):
        return row.kind
    options = ", ".join(f"`--{name}`" for name in row.ours)
    mapped = ", ".join(f"{theirs} is {ours or 'the default'}" for theirs, ours in row.map.items())
    return ": ".join(filter(None, (options, mapped))) + (" (with `--like` alone)" if row.with_like else "")


def _remark(row: Row) -> str:
    """What there is to say about a flag."""
    implied = ", ".join(f"sets `--{name} {value}`, if that is not given" for name, value in row.implies.items())
    excepted = ", ".join(row.map) if row.kind == REFUSED else ""
    return _plain("; ".join(filter(None, (row.why, implied, excepted and f"nothing to do for {excepted}"))))


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _where(block: Block) -> str:
    """The conditions of a part of what --like takes."""
    conditions = [f"{_dashed(name)} {' or '.join(values) or 'not given'}" for name, values in block.when.items()]
    return " and ".join(conditions) or "always"


def _taken(block: Block) -> list[str]:
    return [
        f"`--{_dashed(name)} {str(value).lower() if isinstance(value, bool) else value}`" for name, value in block.take.items()
    ]


def _plain(text: str) -> str:
    """Text that Markdown shows as it is."""
    for character, written in (("&", "&amp;"), ("<", "&lt;"), ("|", "\\|"), ("*", "\\*")):
        text = text.replace(character, written)
    return text


def main() -> None:
    """Write all pages; remove those of commands that are gone."""
    FOLDER.mkdir(exist_ok=True)
    wanted = pages()
    for path in FOLDER.glob("options-*.md"):
        if path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
