"""The pages of bulkinfer report in Chromium: nothing is loaded or run, names are text, phones and the dark are served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chromium import chromium, new_context
from tests.commands import run_here
from tests.forms import long
from tests.reports import HOSTILE, Row, write_job, write_logs, write_run, write_shapes

pytestmark = long

LONG_NAME = b"folder/" + b"n" * 200 + b".png"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of a job with hostile names and all sections, and one of a training run."""
    home = tmp_path_factory.mktemp("report")
    keys = write_shapes(home / "photos", 20)
    rows = [
        Row(key, (i % 4, (i + 1) % 4), (0.99 - i / 40, 0.01), label=0, embedding=(1.0, i / 50)) for i, key in enumerate(keys)
    ]
    rows += [Row(key + b"x", error=("decode", "<b>bad</b>"), embedding=(0.0, 0.0)) for key in (*HOSTILE, LONG_NAME)]
    log_dir = write_job(home, rows)
    seconds = {"decode": 30.0, "wait_for_slot": 1.0, "wait_for_batch": 20.0, "infer": 10.0, "write": 0.2}
    summary = {"images_per_s": 12345.6, "running_s": 65.0, "startup_s": 3.0, "stage_thread_seconds": seconds}
    write_logs(log_dir, [(1000.0 + 10 * i, 100 + i, 10.0) for i in range(50)], summary=summary)
    run = write_run(home / "logs" / "run")
    for folder in (log_dir, run):
        done = run_here("bulkinfer", "report", folder, cwd=home)
        assert done.returncode == 0, done.stderr
    return {"job": log_dir / "report.html", "training": run / "report.html"}


class Opened:
    """A page in the browser, and everything that it asked for or complained of."""

    def __init__(self, browser: Any, path: Path, *, width: int = 1100, scheme: str = "light") -> None:
        self._context = new_context(browser, width=width, color_scheme=scheme)
        self.page, self.requests, self.messages = self._context.new_page(), list[str](), list[str]()
        self.page.on("request", lambda request: self.requests.append(request.url))
        for event in ("console", "dialog", "pageerror"):
            self.page.on(event, lambda found, event=event: self.messages.append(f"{event}: {found}"))
        self.page.goto(path.as_uri())

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_failure: object) -> None:
        self._context.close()


@pytest.mark.parametrize("kind", ["job", "training"])
def test_it_loads_nothing_and_complains_of_nothing(browser: Any, pages: dict[str, Path], kind: str) -> None:
    with Opened(browser, pages[kind]) as opened:
        assert [url for url in opened.requests if not url.startswith("data:")] == [pages[kind].as_uri()]
        assert opened.messages == []
        assert opened.page.locator("script, iframe, object, embed, [onerror], [onclick]").count() == 0


def test_names_are_text(browser: Any, pages: dict[str, Path]) -> None:
    with Opened(browser, pages["job"]) as opened:
        text = opened.page.locator("main").inner_text()
        for shown in ("<script>alert(1)</script>.png", '"><img src=x onerror=alert(2)>.png', "rtl-\\u202egnp.exe.png",
                      "line\\nbreak.png", "{{ 7*7 }}{% raw %}.png", "caf\\xe9 'quoted'.png", "<b>bad</b>"):  # fmt: skip
            assert shown in text, shown
        broken = opened.page.evaluate("[...document.images].filter(image => !image.naturalWidth).length")
        assert (opened.page.locator("img").count() > 20, broken) == (True, 0)


@pytest.mark.parametrize("width", [320, 768, 1600])
@pytest.mark.parametrize("kind", ["job", "training"])
def test_the_page_does_not_scroll_sideways(browser: Any, pages: dict[str, Path], kind: str, width: int) -> None:
    with Opened(browser, pages[kind], width=width) as opened:
        assert opened.page.evaluate("document.documentElement.scrollWidth") == width
        wide = opened.page.evaluate(
            f"[...document.querySelectorAll('main *:not(.scroll *):not(svg *)')]"
            f".filter(each => each.getBoundingClientRect().right > {width} + 1).map(each => each.outerHTML.slice(0, 80))"
        )
        assert wide == []


CONTRAST = """(selector) => {
  const channels = colour => colour.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const light = colour => channels(colour).map(value => value / 255)
    .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
    .reduce((sum, value, i) => sum + value * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = element => {
    for (let each = element; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      if (colour !== 'rgba(0, 0, 0, 0)') return colour;
    }
  };
  return [...document.querySelectorAll(selector)].map(element => {
    const pair = [light(getComputedStyle(element).color), light(ground(element))].sort((a, b) => a - b);
    return (pair[1] + 0.05) / (pair[0] + 0.05);
  });
}"""


@pytest.mark.parametrize("kind", ["job", "training"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_scheme_and_can_be_read(browser: Any, pages: dict[str, Path], kind: str, scheme: str) -> None:
    with Opened(browser, pages[kind], scheme=scheme) as opened:
        ground = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}[scheme]
        selector = "h1, h2, h3, p, dt, dd, small, th, td:not([style]), pre, code, .key, .frame span, .axis, .y span, footer"
        contrasts = opened.page.evaluate(CONTRAST, selector)
        assert len(contrasts) > 40
        assert min(contrasts) >= 4.5  # AA


def test_it_has_headings_and_texts_for_charts(browser: Any, pages: dict[str, Path]) -> None:
    with Opened(browser, pages["job"]) as opened:
        assert opened.page.locator("h1").count() == 1
        assert opened.page.locator("img:not([alt]), img[alt='']").count() == 0
        charts = opened.page.locator("svg[role=img]")
        assert charts.count() == 2
        assert all(charts.nth(i).get_attribute("aria-label") for i in range(2))


def test_it_prints_in_light_colours(browser: Any, pages: dict[str, Path]) -> None:
    with Opened(browser, pages["job"], scheme="dark") as opened:
        opened.page.emulate_media(media="print")
        assert opened.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert opened.page.pdf(format="A4")[:5] == b"%PDF-"
