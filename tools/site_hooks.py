"""What MkDocs cannot do by itself, for docs/mkdocs.yml: pages stay where GitHub shows them, and folders fill the navigation.

- The pages are docs/ itself, beside mkdocs.yml, and README, CONTRIBUTING, SECURITY, CHANGELOG and LICENSE of the root.
- An entry of the navigation that ends with a slash stands for the pages of that folder that no other entry names.
- Every page is also published as Markdown, and llms.txt lists them for programs that read.
"""

from __future__ import annotations

import html
import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

DOCS = Path(__file__).resolve().parents[1] / "docs"
ROOT = DOCS.parent
ROOT_PAGES = {  # in the root of the repository -> in the site
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "LICENSE": "license.md",
}
LINK = re.compile(r"(?<=\]\()([^)#\s:]+)(?=[)#])")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> Any:
    """Take docs/ as the folder of the pages; mkdocs.yml may not name it, because it lies in it."""
    config.docs_dir = str(DOCS)
    config.nav = _expanded(config.nav, str(config.nav))
    return config


def _expanded(entry: Any, named: str) -> Any:
    """A navigation in which each "folder/" has become the pages of that folder that are not in `named`."""
    if isinstance(entry, list):
        return [page for one in entry for page in (_folder(one, named) if str(one).endswith("/") else [_expanded(one, named)])]
    return {title: _expanded(inner, named) for title, inner in entry.items()} if isinstance(entry, dict) else entry


def _folder(name: str, named: str) -> list[str]:
    pages = [f"{name.removeprefix('./')}{path.name}" for path in (DOCS / name).glob("*.md")]
    return sorted(page for page in pages if f"'{page}'" not in named)


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the root. mkdocs.yml itself is no page."""
    for name, page in ROOT_PAGES.items():
        text = (ROOT / name).read_text()
        text = f"# Licence\n\n```text\n{text}```\n" if name == "LICENSE" else text
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links of the repository lead to pages of the site."""
    uri = page.file.src_uri
    place = next((ROOT / name for name, of in ROOT_PAGES.items() if of == uri), DOCS / uri)
    parts = FENCE.split(markdown)
    parts[::2] = [LINK.sub(lambda found: _of_site(found[1], place, uri), part) for part in parts[::2]]
    return "".join(parts)


def _of_site(target: str, place: Path, uri: str) -> str:
    """The target of a link in the file `place`, as seen from its page `uri`; what is no page stays."""
    path = Path(os.path.normpath(place.parent / target))
    page = ROOT_PAGES.get(str(path.relative_to(ROOT))) if path.is_relative_to(ROOT) else None
    if page is None:
        if not path.is_relative_to(DOCS):
            return target
        page = str(path.relative_to(DOCS))
    return os.path.relpath(page, os.path.dirname(uri) or ".")


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Publish the Markdown of a page beside it."""
    path = Path(config.site_dir) / page.file.src_uri
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page.markdown)
    return output


def on_nav(nav: Any, **_: Any) -> Any:
    """Keep the order of the pages for llms.txt."""
    on_nav.pages = nav.pages  # type: ignore[attr-defined]
    return nav


def on_post_build(config: Any) -> None:
    """Write llms.txt: every page with its first paragraph."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", "", "## Pages", ""]
    for page in on_nav.pages:  # type: ignore[attr-defined]
        lines.append(f"- [{page.title}]({page.file.src_uri}): {first_paragraph(page.markdown)}")
    (Path(config.site_dir) / "llms.txt").write_text("\n".join(lines) + "\n")


def first_paragraph(markdown: str) -> str:
    """The first paragraph behind the title, on one line and without its links."""
    blocks = re.sub(r"<!--.*?-->", "", markdown, flags=re.DOTALL).strip().split("\n\n")
    text = next((" ".join(block.split()) for block in blocks if not block.lstrip().startswith(("#", "```", "!["))), "")
    return html.unescape(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text))
