"""The documents as a site: MkDocs finds no fault, nothing comes from elsewhere, and every page is there as Markdown too."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forms import long
from tests.rules.source import ROOT

pytestmark = long

LOADED = re.compile(r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?:https?:)?//|<link\b[^>]*\bhref=["']?(?:https?:)?//""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as docs/mkdocs.yml says; a warning is an error."""
    folder = tmp_path_factory.mktemp("site") / "site"
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", "docs/mkdocs.yml", "-d", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_document_is_a_page(site: Path) -> None:
    pages = {str(path.relative_to(ROOT / "docs").with_suffix("")) for path in (ROOT / "docs").rglob("*.md")}
    pages |= {"index", "contributing", "security", "changelog", "license"}
    assert {page for page in pages if not (site / f"{page}.html").is_file()} == set()


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    found = {path.name: LOADED.findall(path.read_text()) for path in site.rglob("*.html")}
    found |= {path.name: re.findall(r"""url\(["']?(?:https?:)?//""", path.read_text()) for path in site.rglob("*.css")}
    assert {name: links for name, links in found.items() if links} == {}


def test_every_page_is_there_as_markdown(site: Path) -> None:
    listed = re.findall(r"^- \[[^\]]+\]\(([^)]+)\): (.+)$", (site / "llms.txt").read_text(), re.MULTILINE)
    assert len(listed) == len([path for path in site.rglob("*.html") if path.name != "404.html"])
    for name, purpose in listed:
        text = (site / name).read_text()
        assert text.lstrip().startswith("# ")
        assert len(purpose) > 20 or name.startswith("adr/")
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
            assert (site / name).parent.joinpath(target).exists(), (name, target)
