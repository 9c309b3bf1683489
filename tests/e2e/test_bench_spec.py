"""bulkinfer bench --spec as a user runs it: a file of the reference with our commands, kills, and a baseline."""

from __future__ import annotations

import csv
import json
import os
import select
import signal
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.commands import command, run, run_here
from tests.forms import long
from tests.models import write_tiny_model

# As the reference writes it, but for the command, the pattern of its line, and the file of ours
REFERENCE = r"""---
common_options: &common_options
  location: public_examples/vision/cnns/pytorch
  requirements_path: requirements.txt
  data:
    throughput:
      regexp: 'Total .* (.*?) images\/sec'
      skip: 1
    ok:
      reduction_type: "final"
      file: summary.json
      path: ok
  output:
    - [samples/sec, "throughput"]
    - [pictures, "ok"]

pytorch_tiny_infer_gen:
  <<: *common_options
  description: Inference on made-up pictures.
  cmd: >-
    infer_launch
      --model_name tiny
      --device cpu
      --precision fp32
      --synthetic
      --iterations 4
      --batches_per_step 2
      --streams {streams}
      --log_path {run_dir}
  parameters:
    streams: 1,2

pytorch_tiny_train_real_pod16:
  <<: *common_options
  cmd: >-
    poprun --num-instances=8 python3 train.py --imagenet-data-path $DATASETS_DIR/imagenet-raw-dataset

pytorch_tiny_train_real_pod16_conv:
  <<: *common_options
  cmd: python3 train.py --wandb
"""


def test_a_file_of_the_reference_runs_with_our_commands(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "models", "tiny")
    (tmp_path / "benchmarks.yml").write_text(REFERENCE)
    found = run("bulkinfer", "bench", "--spec", "benchmarks.yml", cwd=tmp_path)
    assert (found.returncode, found.stderr) == (0, "")
    lines = found.stdout.splitlines()
    for line in (
        "pytorch_tiny_train_real_pod16_conv: is left out, since it trains until it converges: name it to run it",
        "pytorch_tiny_infer_gen: requirements_path is left out: install these packages beforehand",
        "pytorch_tiny_train_real_pod16: cannot run here, it needs the environment variable DATASETS_DIR",
        "| Inference on made-up pictures | samples/sec | pictures |",
    ):
        assert line in lines, line
    folder = tmp_path / "logs" / "latest"
    kept = json.loads((folder / "benchmark_results.json").read_text())
    gen = kept["benchmarks"]["pytorch_tiny_infer_gen"]
    names = [f"pytorch_tiny_infer_gen_streams_{number}" for number in (1, 2)]
    assert [*gen["variants"]] == names
    for each in gen["runs"]:
        printed = (folder / each["folder"] / "stdout").read_text().splitlines()
        rates = [float(line.split()[-2]) for line in printed if line.startswith("Total ")]
        assert each["samples"]["throughput"] == rates[1:]  # the first one in time is dropped
        (summary,) = (path for path in (folder / each["folder"]).glob("tiny-*/summary.json"))
        assert each["samples"]["ok"] == [json.loads(summary.read_text())["ok"]]
    assert kept["hardware"]["usable_cores"] >= 1
    rows = list(csv.DictReader((folder / "benchmark_results.csv").read_text().splitlines()))
    assert {row["variant"] for row in rows} >= {*names}
    junit = ElementTree.parse(folder / "benchmark_results.xml")
    cases = {case.get("name"): [each.tag for each in case] for case in junit.iter("testcase")}
    assert cases == {**{name: [] for name in names}, "pytorch_tiny_train_real_pod16": ["skipped"]}
    assert "## pytorch_tiny_infer_gen" in (folder / "benchmark_results.md").read_text()


def write_commands(place: Path, rates: tuple[float, ...]) -> None:
    """A file of benchmarks whose entry has the rates of `rates.txt`, one for each run."""
    (place / "rates.txt").write_text("".join(f"{rate}\n" for rate in rates))
    (place / "next.py").write_text(
        "from pathlib import Path\nfirst, _, rest = Path('rates.txt').read_text().partition('\\n')\n"
        "Path('rates.txt').write_text(rest)\nprint('rate', first)\n"
    )
    (place / "benchmarks.yml").write_text(
        "pairs: {cmd: 'python next.py {way}', variants: {a: {way: a}, b: {way: b}}, ratios: [[a, b]], rounds: 3,\n"
        "  data: {rate: {regexp: 'rate (.*)'}}}\n"
    )


def test_a_ratio_that_has_fallen_behind_fails(tmp_path: Path) -> None:
    spec = ("bench", "--spec", "benchmarks.yml")
    write_commands(tmp_path, (20, 10, 10, 21, 19, 10))  # a, b, b, a, a, b: 2.0, 2.1, 1.9
    assert run_here("bulkinfer", *spec, cwd=tmp_path).returncode == 0
    (tmp_path / "logs" / "latest" / "benchmark_results.json").rename(tmp_path / "before.json")
    write_commands(tmp_path, (19.5, 10, 10, 20, 20, 10))
    found = run_here("bulkinfer", *spec, "--baseline", "before.json", cwd=tmp_path)
    assert (found.returncode, found.stderr) == (0, "")
    assert "baseline: 1 ratio(s) compared with before.json" in found.stdout.splitlines()
    write_commands(tmp_path, (15, 10, 10, 15, 15, 10))
    found = run_here("bulkinfer", *spec, "--baseline", "before.json", cwd=tmp_path)
    assert (found.returncode, found.stderr) == (
        1,
        "bulkinfer bench: 1 ratio(s) fell behind the baseline by more than their spread: pairs: a / b, rate: "
        "1.500 (1.500 - 1.500), and in the baseline 2.000 (1.950 - 2.050)\n",
    )
    failures = ElementTree.parse(tmp_path / "logs" / "latest" / "benchmark_results.xml").iter("failure")
    assert [(failure.get("message") or "")[:18] for failure in failures] == ["a / b, rate: 1.500"] * 2


def test_each_failure_is_one_sentence_and_the_others_run(tmp_path: Path) -> None:
    commands = {"a": "echo hello", "b": "echo rate 7", "c": "'false'"}
    (tmp_path / "benchmarks.yml").write_text(
        "".join(f"{name}: {{cmd: {each}, data: {{rate: {{regexp: 'rate (.*)'}}}}}}\n" for name, each in commands.items())
    )
    found = run_here("bulkinfer", "bench", "--spec", "benchmarks.yml", cwd=tmp_path)
    assert found.returncode == 2
    assert found.stderr.startswith(
        "bulkinfer bench: a: rate: the pattern 'rate (.*)' matches nothing of what the command printed"
    )
    assert found.stderr.endswith("; 1 more failed: c\n")
    assert "b: round 1 of 1" in found.stdout
    stopped = run_here("bulkinfer", "bench", "--spec", "benchmarks.yml", "--stop_on_error", cwd=tmp_path)
    assert (stopped.returncode, "b: round" in stopped.stdout) == (2, False)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("c*",), "no entry of benchmarks.yml matches 'c*'; there are a, gpu"),
        (("gpu",), "none of the entries can run here: gpu needs 100000 cores"),
        (("--model_name", "x"), "--model_name does not go with --spec: the file says what is measured"),
        (("--resume",), "--resume: logs holds no unfinished run of benchmarks.yml: leave --resume out"),
        (("--baseline", "absent.json"), "absent.json does not exist"),
        (("--quick", "--baseline", "x"), "--baseline compares spreads, which one round does not have: leave out --quick"),
    ],
)
def test_refusals(tmp_path: Path, words: tuple[str, ...], sentence: str) -> None:
    data = "data: {rate: {regexp: 'rate (.*)'}}"
    (tmp_path / "benchmarks.yml").write_text(
        f"a: {{cmd: echo, {data}}}\ngpu: {{cmd: echo, needs: {{cores: 100000}}, {data}}}\n"
    )
    found = run_here("bulkinfer", "bench", "--spec", "benchmarks.yml", *words, cwd=tmp_path)
    assert (found.returncode, found.stderr.replace(f"{tmp_path}/", "")) == (2, f"bulkinfer bench: {sentence}\n")
    found = run_here("bulkinfer", "bench", "--quick", cwd=tmp_path)
    assert found.stderr == "bulkinfer bench: --quick belongs to --spec FILE\n"


@long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_interrupted_run_goes_on(tmp_path: Path, number: signal.Signals) -> None:
    """`second` writes into a pipe when it runs, then waits for ever; with the file `go` it ends."""
    os.mkfifo(tmp_path / "running")
    (tmp_path / "second.py").write_text(
        "import os, signal\nfrom pathlib import Path\nif not Path('go').exists():\n"
        "    with open('running', 'w') as pipe:\n        pipe.write(str(os.getpid()))\n    signal.pause()\nprint('rate 2')\n"
    )
    (tmp_path / "first.py").write_text("open('runs', 'a').write('x')\nprint('rate 1')\n")
    (tmp_path / "benchmarks.yml").write_text(
        "".join(f"{name}: {{cmd: python {name}.py, data: {{rate: {{regexp: 'rate (.*)'}}}}}}\n" for name in ("first", "second"))
    )
    words = command("bulkinfer", "bench", "--spec", "benchmarks.yml")
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    pid = int((tmp_path / "running").read_text())  # waits until the command runs
    descriptor = os.pidfd_open(pid)
    process.send_signal(number)
    out, err = process.communicate(timeout=300)
    if number == signal.SIGTERM:
        assert (process.returncode, err) == (143, "bulkinfer bench: stopped by SIGTERM\n")
        last = out.splitlines()[-1]
        assert last == "finished entries are kept; the others: bulkinfer bench --spec benchmarks.yml --resume"
    assert ended(descriptor)  # the command does not outlive the bench
    (tmp_path / "go").touch()
    found = run("bulkinfer", "bench", "--spec", "benchmarks.yml", "--resume", cwd=tmp_path)
    assert (found.returncode, found.stderr) == (0, "")
    assert "first: was finished before" in found.stdout.splitlines()
    assert (tmp_path / "runs").read_text() == "x"
    kept = json.loads((tmp_path / "logs" / "latest" / "benchmark_results.json").read_text())["benchmarks"]
    assert {name: result["figures"][name]["rate"]["value"] for name, result in kept.items()} == {"first": 1.0, "second": 2.0}


def ended(descriptor: int) -> bool:
    """Whether the process of a descriptor ends within two minutes."""
    try:
        return bool(select.select([descriptor], [], [], 120)[0])
    finally:
        os.close(descriptor)
