"""event_log.py: a worker's events as JSON lines, on disk at once."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from bulkinfer.worker.event_log import EventLog
from bulkinfer.worker.protocol import Died, Ended, Totals


def test_events_are_lines_of_json_and_are_there_at_once(tmp_path: Path) -> None:
    path, before = tmp_path / "worker-0.jsonl", time.time()
    first = EventLog(path)
    first.note("modules", names=["é \n \udce9"])
    first.write(Ended(Totals({}, 5, 0.5), {"odd": 2}))
    note, event = map(json.loads, path.read_text().splitlines())
    assert before - 0.01 < note.pop("time") <= event.pop("time") < time.time() + 0.01
    assert note == {"kind": "modules", "names": ["é \n \udce9"]}
    totals = {"metrics": {}, "peak_memory_bytes": 5, "cpu_s": 0.5}
    assert event == {"kind": "Ended", "totals": totals, "decoder_warnings": {"odd": 2}}
    first.close()
    again = EventLog(path)
    again.write(Died("signal 9", True))
    again.close()
    assert [json.loads(line)["kind"] for line in path.read_text().splitlines()] == ["modules", "Ended", "Died"]
    with pytest.raises(ValueError, match="closed"):
        again.note("late")


def test_a_full_disk_is_told_with_the_file() -> None:
    log = EventLog(Path("/dev/full"))
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        log.note("anything")
    with pytest.raises(OSError, match="No space left on device"):  # what is still in the buffer
        log.close()
