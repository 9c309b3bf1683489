"""The page of bulkinfer serve --jobs in Chromium: the token, the list, reports; nothing foreign is loaded or run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chromium import chromium, new_context
from tests.forms import long
from tests.jobs_over_http import NETWORK, ask, ended, submit, token, write_home
from tests.launches import write_photos
from tests.runtime_in_front import held_after, runtime_in_front
from tests.serving import Server, serving

pytestmark = long

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def go(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file without which jobs stand still."""
    path = tmp_path_factory.mktemp("held") / "go"
    path.touch()
    return path


@pytest.fixture(scope="module")
def server(go: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service with two jobs of ann: one done, one failed whose folder has a hostile name."""
    home = write_home(tmp_path_factory.mktemp("jobs"))
    write_photos(home / "photos" / HOSTILE, 0).mkdir(exist_ok=True)
    env = {**os.environ, **runtime_in_front(home / "front", after=held_after(0, go))}
    with serving(home, "--jobs", "queue", env=env) as running:
        for folder in ("photos", f"photos/{HOSTILE}"):
            job = submit(running, "ann", {"data_dir": f"{home}/{folder}", **NETWORK})[1]
            ended(running, "ann", job["id"])
        yield running
        assert running.stop() == 0


class Opened:
    """The page in a browser, and everything that it asked for or complained of."""

    def __init__(self, browser: Any, server: Server, *, width: int = 1100) -> None:
        self.origin = f"http://127.0.0.1:{server.rest}"
        self.context = new_context(browser, width=width)
        self.page, self.requests, self.messages = self.context.new_page(), list[str](), list[str]()
        self.context.on("request", lambda request: self.requests.append(request.url))
        for event in ("console", "pageerror"):
            self.page.on(event, lambda found, event=event: self.messages.append(f"{event}: {found}"))
        self.page.goto(self.origin)

    def sign_in(self, word: str) -> None:
        self.page.fill("#token", word)
        self.page.click("#sign-in button")

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_failure: object) -> None:
        self.context.close()


def test_it_lists_the_jobs_of_the_token_and_opens_their_reports(browser: Any, server: Server) -> None:
    with Opened(browser, server) as opened:
        page = opened.page
        assert page.locator("#table").is_hidden()
        opened.sign_in(token("ann"))
        rows = page.locator("#jobs tr")
        rows.nth(1).wait_for()
        assert rows.evaluate_all("rows => rows.map(row => row.dataset.state)") == ["failed", "done"]
        assert "20 of 20" in rows.nth(1).inner_text()
        assert page.locator("progress").first.evaluate("bar => bar.value / bar.max") == 1
        assert page.locator("#user").inner_text() == "ann"
        with opened.context.expect_page() as found:
            rows.nth(1).get_by_text("Report").click()
        report = found.value
        report.wait_for_load_state()
        assert report.url.startswith(f"{opened.origin}/reports/")
        assert "tiny" in report.locator("h1").inner_text()
        assert report.evaluate("getComputedStyle(document.body).margin") is not None
        assert report.locator("img").evaluate_all("images => images.filter(image => !image.naturalWidth).length") == 0
        assert [url for url in opened.requests if not url.startswith((opened.origin, "data:"))] == []
        assert opened.messages == []


def test_names_are_text(browser: Any, server: Server) -> None:
    with Opened(browser, server) as opened:
        opened.sign_in(token("ann"))
        opened.page.locator("#jobs tr").nth(1).wait_for()
        assert HOSTILE in opened.page.locator("#jobs").inner_text()
        assert opened.page.locator("#jobs img").count() == 0
        assert opened.messages == []


def test_a_wrong_token_shows_nothing(browser: Any, server: Server) -> None:
    with Opened(browser, server) as opened:
        opened.sign_in("wrong")
        opened.page.get_by_text("jobs need the token of a user").wait_for()
        assert opened.page.locator("#table").is_hidden()
        assert opened.page.evaluate("sessionStorage.length") == 0


def test_the_token_stays_in_its_tab(browser: Any, server: Server) -> None:
    with Opened(browser, server) as opened:
        opened.sign_in(token("bob"))
        opened.page.get_by_text("No jobs yet.").wait_for()
        assert opened.page.evaluate("[sessionStorage.length, localStorage.length, document.cookie]") == [1, 0, ""]
        opened.page.reload()
        opened.page.get_by_text("No jobs yet.").wait_for()
        with opened.context.expect_page() as found:
            opened.page.evaluate(f"window.open('{opened.origin}/', '_blank', 'noopener')")
        found.value.locator("#sign-in").wait_for()
        opened.page.click("#sign-out")
        assert opened.page.evaluate("sessionStorage.length") == 0
        assert token("bob") not in opened.page.content()


def test_a_job_is_cancelled(browser: Any, server: Server, go: Path) -> None:
    go.unlink()
    home = Path(ask(server, "ann", "GET", "/jobs")[1]["jobs"][-1]["options"]["data_dir"])
    jobs = [submit(server, "bob", {"data_dir": str(home), **NETWORK, "top_k": 1 + number})[1] for number in range(3)]
    with Opened(browser, server) as opened:
        opened.page.on("dialog", lambda dialog: dialog.accept())
        opened.sign_in(token("bob"))
        row = opened.page.locator(f"tr[data-job='{jobs[2]['id']}']")
        row.get_by_text("Cancel").click()
        opened.page.locator(f"tr[data-job='{jobs[2]['id']}'][data-state='cancelled']").wait_for()
    go.touch()
    assert [ended(server, "bob", job["id"])["state"] for job in jobs] == ["done", "done", "cancelled"]


@pytest.mark.parametrize("width", [320, 1100])
def test_the_page_does_not_scroll_sideways(browser: Any, server: Server, width: int) -> None:
    with Opened(browser, server, width=width) as opened:
        opened.sign_in(token("ann"))
        opened.page.locator("#jobs tr").nth(1).wait_for()
        assert opened.page.evaluate("document.documentElement.scrollWidth") == width


def test_its_policy_lets_no_other_script_run(browser: Any, server: Server) -> None:
    with Opened(browser, server) as opened:
        with opened.page.expect_console_message(lambda message: "Content Security Policy" in message.text):
            opened.page.evaluate(
                "const made = document.createElement('script'); made.textContent = 'window.ran = 1'; document.body.append(made)"
            )
        assert opened.page.evaluate("window.ran") is None
