"""stop_signals.py: a signal unwinds the work of a command, wherever it comes; each case in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

WORK = """
import os, signal, sys, time
from bulkinfer.commands.outcome import exit_code_of, leave
from bulkinfer.host import stop_signals
from bulkinfer.host.stop_signals import watch_signals
stop_signals._AGAIN_S, stop_signals._PATIENCE_S = {again_s}, 600.0
watch_signals("act")

def send(number=signal.{number}):
    os.kill(os.getpid(), number)

class Destroyed:
    def __del__(self):
        send()

def work():
    try:
        {work}
        time.sleep(30)
    finally:
        print("tidied")
    return 0

leave(exit_code_of("act", work))
"""


LATE_S = 600.0  # in place of the 0.1 s between reminders: what comes before the next one may take its time
MOST_S = 120.0  # of a process; a machine may be busy


def code_of(work: str, number: str = "SIGTERM", again_s: float = 0.1) -> str:
    """A program that does this work."""
    return WORK.format(work=work, number=number, again_s=again_s)


def run(work: str, number: str = "SIGTERM", again_s: float = 0.1) -> tuple[int, str, str]:
    code = code_of(work, number, again_s)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=MOST_S, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("number", "sentence"),
    [("SIGINT", "interrupted"), ("SIGTERM", "stopped by SIGTERM"), ("SIGHUP", "stopped by SIGHUP")],
)
def test_c53_a_signal_at_work_leaves_every_block_in_order(number: str, sentence: str) -> None:
    assert run("send()", number) == (128 + getattr(signal, number), "tidied\n", f"act: {sentence}\n")


def test_a_second_signal_does_not_disturb_the_tidying() -> None:
    work = """
        try:
            send()
        finally:
            send(signal.SIGINT)"""
    assert run(work) == (143, "tidied\n", "act: stopped by SIGTERM\n")


def test_an_alarm_that_somebody_has_set_ends_the_process_as_before() -> None:
    assert run("signal.setitimer(signal.ITIMER_REAL, 0.01)") == (-signal.SIGALRM, "", "")


def test_a_signal_that_a_library_swallows_comes_again() -> None:
    work = """
        for _ in range(3):
            try:
                send(signal.SIGINT)
                time.sleep(30)
            except BaseException:
                pass"""
    assert run(work) == (130, "tidied\n", "act: interrupted\n")


def test_a_signal_that_was_swallowed_goes_to_the_handler_there_is_by_then() -> None:
    work = """
        try:
            send()
        except BaseException:
            pass
        def stop(number, frame):
            print("stop", number)
            raise KeyboardInterrupt
        signal.signal(signal.SIGTERM, stop)
        signal.setitimer(signal.ITIMER_REAL, 0.1)  # that of the reminder, which is not due before there is this handler"""
    assert run(work, again_s=LATE_S) == (130, "stop 15\ntidied\n", "act: interrupted\n")


def test_a_second_signal_where_the_first_was_caught() -> None:
    work = """
        try:
            send(signal.SIGINT)
        except BaseException:
            pass
        send()"""
    assert run(work, again_s=LATE_S) == (143, "tidied\n", "act: stopped by SIGTERM\n")


def test_a_signal_in_a_destructor_comes_again() -> None:
    assert run("Destroyed()") == (143, "tidied\n", "act: stopped by SIGTERM\n")


def test_a_signal_that_a_library_turns_into_another_error() -> None:
    work = """
        try:
            send()
        except BaseException as error:
            raise RuntimeError("callback failed") from error"""
    assert run(work) == (143, "tidied\n", "act: stopped by SIGTERM\n")


def test_an_error_after_a_signal_that_a_library_swallowed_is_told_itself() -> None:
    work = """
        try:
            send(signal.SIGINT)
        except BaseException:
            pass
        raise OSError(28, "No space left on device", "rows")"""
    sentence = "act: No space left on device: rows: free some space, and type the command again\n"
    assert run(work, again_s=LATE_S) == (1, "tidied\n", sentence)


@pytest.mark.parametrize(
    "failure",
    [
        "raise ImportError('cannot load module more than once per process')",
        "__import__('types').ModuleType('numpy').ndarray",
        "__import__('broken_package')",
    ],
)
def test_a_package_whose_import_a_signal_has_ended_is_none_of_the_users_business(failure: str, tmp_path: Path) -> None:
    (tmp_path / "broken_package.py").write_text("raise RuntimeError('a function already has a docstring')")
    work = f"""
        sys.path.insert(0, {str(tmp_path)!r})
        try:
            send(signal.SIGINT)
        except BaseException:
            pass
        {failure}"""
    assert run(work) == (130, "tidied\n", "act: interrupted\n")


def test_a_bug_after_a_signal_that_a_library_swallowed_keeps_its_traceback() -> None:
    work = """
        try:
            send(signal.SIGINT)
        except BaseException:
            pass
        None.rows"""
    code, _, told = run(work, again_s=LATE_S)
    assert code == 1
    assert told.startswith("Traceback ")
    assert told.endswith("AttributeError: 'NoneType' object has no attribute 'rows'\n")


def test_a_signal_that_comes_again_in_a_call_that_fails() -> None:
    """No code of Python runs between that call and the end of the work, where the signal is raised."""
    work = """
        try:
            send()
        except BaseException:
            pass
        operator.indexOf(itertools.repeat(0, 30_000_000), 1)  # takes more than the 0.1 s"""
    code = code_of(work).replace('print("tidied")', "pass")
    code = code.replace("import os,", "import itertools, operator, os,")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=MOST_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "act: stopped by SIGTERM\n")


@pytest.mark.parametrize("delay_s", [300, 3000])
def test_an_alarm_that_somebody_had_set_is_given_back(delay_s: int) -> None:
    """It was due before the next reminder, or after it. What is left of the time is read, and not waited for."""
    work = f"""
        signal.signal(signal.SIGALRM, lambda *_: print("theirs"))
        signal.setitimer(signal.ITIMER_REAL, {delay_s}, 7000)
        send()"""
    given_back = f"""exit_code_of("act", work)
left, interval = signal.getitimer(signal.ITIMER_REAL)
print({delay_s} - 120 < left <= {delay_s}, interval)
signal.setitimer(signal.ITIMER_REAL, 0.01)
time.sleep(1)"""
    code = code_of(work, again_s=LATE_S).replace('leave(exit_code_of("act", work))', given_back)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=MOST_S, check=False)
    assert (done.stdout, done.stderr) == ("tidied\nTrue 7000.0\ntheirs\n", "act: stopped by SIGTERM\n")


def test_a_signal_is_found_behind_several_errors() -> None:
    work = """
        try:
            try:
                send()
            finally:
                raise OSError(28, "No space left on device")
        except OSError:
            raise RuntimeError("callback failed") from None"""
    assert run(work) == (143, "tidied\n", "act: stopped by SIGTERM\n")


def test_a_terminal_that_is_gone_costs_the_sentence_only(tmp_path: Path) -> None:
    code = code_of("send()", "SIGHUP").replace('print("tidied")', f"open({str(tmp_path / 'tidied')!r}, 'w')")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", code], stderr=full, timeout=MOST_S, check=False)
    assert done.returncode == 129
    assert (tmp_path / "tidied").exists()


def importing(folder: Path, *lines: str) -> str:
    """Work that imports a module of these lines, which has `send`."""
    text = "\n".join(("from builtins import send", "import builtins, signal, time", *lines))
    (folder / "slow_package.py").write_text(text)
    return f"""
        import builtins
        builtins.send = send
        sys.path.insert(0, {str(folder)!r})
        import slow_package
        print("gone on", flush=True)"""


def test_a_signal_in_an_import_waits_for_its_end(tmp_path: Path) -> None:
    """An exception in its middle would abort the process where the module is C++."""
    work = importing(tmp_path, "send()", "time.sleep(0.3)", "print('loaded', flush=True)")
    code, out, told = run(work)
    assert (code, told) == (143, "act: stopped by SIGTERM\n")
    assert out.replace("gone on\n", "") == "loaded\ntidied\n"  # the alarm comes up to 0.1 s after the import


def test_a_second_signal_in_an_import_ends_the_process(tmp_path: Path) -> None:
    work = importing(tmp_path, "send()", "send(signal.SIGINT)", "print('loaded', flush=True)")
    assert run(work) == (130, "", "act: interrupted\n")


def test_a_signal_in_an_import_while_tidying_lets_it_end(tmp_path: Path) -> None:
    (tmp_path / "slow_package.py").write_text("import os\nos.kill(os.getpid(), 2)\nprint('loaded', flush=True)")
    work = f"""
        sys.path.insert(0, {str(tmp_path)!r})
        try:
            send()
        finally:
            import slow_package"""
    assert run(work) == (143, "loaded\ntidied\n", "act: stopped by SIGTERM\n")
