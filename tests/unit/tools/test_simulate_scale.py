"""tools/simulate_scale.py: where a formula gives the answer, the simulation gives the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tools.simulate_scale import Scale, main, most_devices, simulate

# Steps of 10 s on a device, and nothing else takes time
PLAIN = Scale(
    pictures=100_000, devices=1, rate=100, step_pictures=1000, startup_s=0, event_s=0, put_s=0, puts_per_s=1e9, picture_bytes=1
)


def test_a_device_takes_its_start_and_its_steps() -> None:
    found = simulate(replace(PLAIN, startup_s=7.0, event_s=0.5, put_s=2.0, price_per_h=3.0))
    assert found.seconds == pytest.approx(7 + 0.5 + 100 * 10 + 2)  # all other events lie beside the steps
    assert found.device_hours == pytest.approx(found.seconds / 3600)
    assert found.cost == pytest.approx(3 * found.device_hours)
    assert (found.lost_s, found.failures, found.limit) == (0, 0, "devices")


@pytest.mark.parametrize(("devices", "seconds"), [(2, 500), (10, 100), (100, 10), (1000, 10), (30, 40)])
def test_devices_share_the_steps(devices: int, seconds: float) -> None:
    assert simulate(replace(PLAIN, devices=devices)).seconds == pytest.approx(seconds)


def test_pictures_that_fill_no_step_are_done_too() -> None:
    assert simulate(replace(PLAIN, pictures=1500)).seconds == pytest.approx(15)


def test_a_launcher_that_is_too_slow_limits() -> None:
    """Each step costs it an event: it hands out four in a second, to devices that could take forty."""
    scale = replace(PLAIN, pictures=1_000_000, devices=400, event_s=0.25)
    found = simulate(scale)
    assert found.limit == "launcher"
    assert found.seconds == pytest.approx(1000 * 0.25, rel=0.1)
    assert most_devices(scale)["launcher"] == pytest.approx(40)
    shards = simulate(replace(scale, launchers=20))
    assert shards.limit == "devices"
    assert shards.seconds < found.seconds / 4


def test_a_store_that_is_too_slow_limits() -> None:
    puts = simulate(replace(PLAIN, pictures=1_000_000, devices=400, put_s=1.0, puts_per_s=5))
    assert (puts.limit, puts.seconds) == ("puts", pytest.approx(1000 / 5, rel=0.1))
    reads = simulate(replace(PLAIN, devices=100, picture_bytes=1000, store_bytes_per_s=1e6))
    assert (reads.limit, reads.seconds) == ("reads", pytest.approx(100_000 * 1000 / 1e6, rel=0.1))


def test_devices_that_fail_lose_the_steps_in_hand() -> None:
    scale = replace(PLAIN, pictures=2_000_000, devices=20, mtbf_h=0.25, restart_s=30)
    found = simulate(scale)
    hours = 20_000 / 3600  # of work
    assert found.failures == pytest.approx(hours / 0.25, rel=0.5)
    assert 0 < found.lost_s < 10 * found.failures
    assert found.lost_s == pytest.approx(5 * found.failures, rel=0.5)  # half a step on average
    assert simulate(scale) == found, "the same seed"
    assert simulate(replace(scale, seed=1)) != found


def test_a_slow_device_holds_up_its_shard_and_not_the_queue() -> None:
    scale = replace(PLAIN, pictures=1_000_000, devices=10, slow_share=0.3, slow_factor=3.0, seed=2)
    queue, shards = simulate(scale), simulate(replace(scale, launchers=10))
    assert shards.seconds == pytest.approx(3 * 1000)
    assert queue.seconds < 0.55 * shards.seconds


@pytest.mark.parametrize("changes", [{"launchers": 2}, {"launchers": 0}, {"pictures": 0}, {"step_pictures": 0}])
def test_what_is_no_job_is_refused(changes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"cannot be shared|are no job"):
        simulate(replace(PLAIN, **changes))


def test_the_command_prints_a_row_for_each_number(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--pictures", "1e5", "--devices", "1", "10", "--launchers", "4"])
    printed = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in printed[2:]] == ["1", "10"]
    assert printed[0].startswith("devices that can be kept busy by one launcher and the store: launcher 50,000, puts 10,000")
