"""spec_file.py: files of benchmarks in our form and in that of examples-utils, and one sentence for each fault."""

from __future__ import annotations

from pathlib import Path

import pytest
from bulkinfer.bench.spec.entry import Metric, Variant
from bulkinfer.bench.spec.spec_file import read_spec
from bulkinfer.errors import UsageError

DATA = "data: {rate: {regexp: 'rate (.*)'}}"

# Written as benchmarks.yml files of the reference are: anchors, folded commands, comma lists, a matrix and rows
REFERENCE = r"""
---
common_options: &common_options
  location: public_examples/vision/cnns/pytorch/train
  requirements_file: requirements.txt
  data:
    throughput:
      regexp: 'throughput: *(.*?) samples\/sec'
      skip: 1
    loss:
      reduction_type: "final"
      regexp: 'loss: *(.*?),'
  output:
    - [samples/sec, "throughput"]
    - [loss, "loss"]
  env:
    POPLAR_ENGINE_OPTIONS: '{"opt.enableMultiAccessCopies":"false"}'

train_gen:
  <<: *common_options
  description: |
    Training on made-up data.
  cmd: >-
    python3 train.py
      --batch-size {batch_size}
      --precision {precision}
  parameters:
    batch_size: 4,8
    precision: 16.16

infer_gen:
  <<: *common_options
  cmd: python3 infer.py {bs} {count}
  parameters:
    - [bs, count]
    - [1, 10]
    - [32, 20]
"""


def read(tmp_path: Path, text: str, *, is_quick: bool = False):
    path = tmp_path / "benchmarks.yml"
    path.write_text(text)
    return read_spec(str(path), is_quick=is_quick)


def test_a_file_of_the_reference_is_read(tmp_path: Path) -> None:
    train, infer = read(tmp_path, REFERENCE).entries
    assert train.name == "train_gen"
    assert train.variants == (
        Variant("train_gen_batch_size_4_precision_16.16", {"batch_size": "4", "precision": "16.16"}),
        Variant("train_gen_batch_size_8_precision_16.16", {"batch_size": "8", "precision": "16.16"}),
    )
    assert [variant.values for variant in infer.variants] == [{"bs": "1", "count": "10"}, {"bs": "32", "count": "20"}]
    assert train.metrics == (
        Metric("throughput", "samples/sec", regexp=r"throughput: *(.*?) samples\/sec", skip=1, position=0),
        Metric("loss", "loss", regexp="loss: *(.*?),", reduction="final", position=1),
    )
    assert train.env == {"POPLAR_ENGINE_OPTIONS": '{"opt.enableMultiAccessCopies":"false"}'}
    assert train.notes == ("requirements_file is left out: install these packages beforehand",)
    assert train.location == "public_examples/vision/cnns/pytorch/train"
    assert train.rounds == 1


def test_entries_may_stand_under_benchmarks(tmp_path: Path) -> None:
    (entry,) = read(tmp_path, f"benchmarks: {{a: {{cmd: echo, {DATA}}}}}").entries
    assert entry.name == "a"
    (entry,) = read(tmp_path, f"benchmarks: {{cmd: echo, {DATA}}}").entries  # an entry of that name
    assert entry.name == "benchmarks"


def test_our_own_keys(tmp_path: Path) -> None:
    text = f"""
a:
  cmd: echo {{way}} {{size}}
  constants: {{size: 10}}
  quick: {{size: 1}}
  variants: {{fast: {{way: f}}, exact: {{way: e}}}}
  ratios: [[fast, exact]]
  needs: {{packages: torch, cores: 4}}
  required_environment_variables: [TOKEN]
  timeout: 7
  {DATA}
"""
    (entry,) = read(tmp_path, text).entries
    assert entry.variants == (Variant("fast", {"size": "10", "way": "f"}), Variant("exact", {"size": "10", "way": "e"}))
    assert entry.ratios == (("fast", "exact"),)
    assert (entry.rounds, entry.timeout_s, entry.needs.cores) == (5, 7.0, 4)
    assert (entry.needs.packages, entry.needs.environment) == (("torch",), ("TOKEN",))
    (entry,) = read(tmp_path, text, is_quick=True).entries
    assert (entry.rounds, [variant.values["size"] for variant in entry.variants]) == (1, ["1", "1"])
    (entry,) = read(tmp_path, text.replace("quick: {size: 1}", "quick: {size: 1, way: x}"), is_quick=True).entries
    assert [variant.values["way"] for variant in entry.variants] == ["x", "x"]  # those of variants as well


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"a: {{cmd: echo, cmd: ls, {DATA}}}", "the key 'cmd' stands twice in line 1"),
        ("a: [", "it is not YAML that can be used"),
        ("- a", "it is a list, and a dictionary is needed"),
        ("a_options: {}", "it holds no entry: a name with a cmd below it"),
        (f"a: {{{DATA}}}", "a: it has no cmd"),
        (f"a: {{cmd: yes, {DATA}}}", "a: cmd: YAML reads it as true or false: write it in quotes"),
        (f"a: {{cmd: 5, {DATA}}}", "a: cmd: YAML reads it as a number: write it in quotes"),
        (f"a: {{cmd: echo, pre_run_commands: [no], {DATA}}}", "a: pre_run_commands: 0: YAML reads it as true or false"),
        (f"a: {{cmd: echo, comand: ls, {DATA}}}", "a: unknown key 'comand'; the keys are allow_wandb, cmd, constants"),
        ("a: {cmd: echo}", "a: it extracts nothing: name a figure under data"),
        (f"a/b: {{cmd: echo, {DATA}}}", "a/b: this is no name of an entry"),
        (f"a: {{cmd: echo, env: {{'B=': x}}, {DATA}}}", "a: env: 'B=' is no name of a variable"),
        ("a: {cmd: echo, data: {r: {regexp: '(x)', digits: 100000}}}", "digits: 100000 is more than 15"),
        (f"1: {{cmd: echo, {DATA}}}", "the key 1 is a number: write it in quotes"),
        (f"a: {{cmd: 'echo {{q}}', parameters: {{p: 1}}, {DATA}}}", "there is no parameter 'q'; there are p, run_dir, rounds"),
        (f"a: {{cmd: echo, timeout: soon, {DATA}}}", "a: timeout: it is 'soon', and a number from 0 on is needed"),
        (f"a: {{cmd: echo, rounds: 1.5, {DATA}}}", "a: rounds: 1.5 is no whole number"),
        (f"a: {{cmd: echo, quick: {{n: 1}}, {DATA}}}", "a: quick: 'n' is no constant or parameter; there are none"),
        (f"a: {{cmd: echo, ratios: [[a, b]], {DATA}}}", "a: ratios: 0: there is no variant 'b'; there are a"),
        (f"a: {{cmd: echo, needs: {{gpu: 1}}, {DATA}}}", "a: needs: unknown key 'gpu'; the keys are cores, devices"),
        (f"x: 1\nbenchmarks: {{a: {{cmd: echo, {DATA}}}}}", "unknown key 'x'; the keys are benchmarks"),
    ],
)
def test_faults(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as failed:
        read(tmp_path, text)
    assert sentence in str(failed.value)
    assert "\n" not in str(failed.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist: give a file of benchmarks"):
        read_spec(str(tmp_path / "absent.yml"), is_quick=False)
    with pytest.raises(UsageError, match="is a folder, not a file: give a file of benchmarks"):
        read_spec(str(tmp_path), is_quick=False)
    (tmp_path / "latin.yml").write_bytes(b"a: \xe4")
    with pytest.raises(UsageError, match="it is not UTF-8 text"):
        read_spec(str(tmp_path / "latin.yml"), is_quick=False)


def test_anchors_that_multiply_cost_nothing(tmp_path: Path) -> None:
    levels = "\n".join(f"l{number}_options: &l{number} [{', '.join([f'*l{number - 1}'] * 9)}]" for number in range(1, 30))
    text = f"l0_options: &l0 [x]\n{levels}\na: {{cmd: echo, description: *l29, {DATA}}}"
    with pytest.raises(UsageError, match="a: description: it is a list, and a text is needed"):
        read(tmp_path, text)
