"""A small job to be disturbed: its network, pictures and undisturbed rows; launches of it, and what must hold afterwards."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from bulkinfer.files.own_folder import own_folder
from bulkinfer.results.job_file import job_path
from PIL import Image

from tests import pictures
from tests.commands import command
from tests.faults.matrix import Cell
from tests.faults.points import PLAN_VARIABLE, Plan
from tests.models import COLOURS, LABELS, write_tiny_model

ROOT = Path(__file__).parents[2]
NUM_PICTURES, BATCH_SIZE = 40, 4
LIMIT_S = 300  # of one launch; it takes a second
NOT_REACHED = "nobody came by this point"
_GONE_S = 60.0  # after a launch has ended, however: until all of its processes have; 5 s are promised, a machine may be busy
WORDS = ("--model_name=tiny", f"--batch_size={BATCH_SIZE}", "--batches_per_step=1", "--device=cpu", "--precision=fp32",
         "--save=topk,logits,embedding")  # fmt: skip


def colour_of(number: int) -> tuple[int, int, int]:
    """The colour of a picture: near that of its class, and nobody else's, so that its row cannot be taken for another's.

    Not black, which is the batch of zeros that a worker warms up with: a fault of that picture would be one of the network.
    """
    red, green, blue = (255 - number if channel else 1 + number for channel in COLOURS[LABELS[number % 8]])
    return red, green, blue


def key_of(number: int) -> str:
    """Its name."""
    return f"{number:03d}-{LABELS[number % 8]}.png"


@dataclass(frozen=True)
class Place:
    """A folder with models/, datasets/ (two partitions, copied) and the rows of a launch that nothing disturbed."""

    folder: Path
    rows: pa.Table
    words: tuple[str, ...] = ()  # of every launch

    @classmethod
    def make(cls, folder: Path) -> Place:
        write_tiny_model(folder / "models", batch_sizes=(BATCH_SIZE,))
        files = {key_of(n): pictures.encode(Image.new("RGB", (40, 40), colour_of(n))) for n in range(NUM_PICTURES)}
        pictures.write_files(folder / "photos", files)
        words = ("--data_dir", folder / "photos", "--partitions", 2, "--output", folder / "datasets", "--mode", "copy")
        subprocess.run(command("partition_dataset", *words), check=True, capture_output=True)
        scene = Scene(cls(folder, pa.table({})), folder / "undisturbed")
        launched = scene.launch()
        assert launched.code == 0, launched
        return cls(folder, scene.rows())


def beside_loader_processes(place: Place, count: int = 2) -> Place:
    """The same place, whose workers have so many loader processes."""
    return replace(place, words=(f"--loader_processes={count}", f"--num_workers={count}"))


@dataclass(frozen=True)
class Launched:
    """A launch that has ended; `code` is negative after a signal that nobody caught."""

    code: int
    output: str


class Scene:
    """One job of the place, in a folder of its own; with `owns_input` on a copy of network and pictures."""

    def __init__(self, place: Place, folder: Path, *, owns_input: bool = False) -> None:
        self.place, self.folder = place, folder
        for name in ("temporary", "shared-memory", "home"):
            (folder / name).mkdir(parents=True)
        self.input = folder if owns_input else place.folder
        if owns_input:
            for name in ("models", "datasets"):
                shutil.copytree(place.folder / name, folder / name)
        self.output = folder / "out"
        self.flag = folder / "fired"
        self.released = folder / "released"  # see Plan.held
        self._launches = 0

    def start(self, *words: str, plan: Plan | None = None, retries: bool = False) -> subprocess.Popen[bytes]:
        """The launch, or a retry, and what is to happen to it; its output goes to launch-N.txt."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("COV", "DATA_DIR"))}
        plan_file = self.folder / "plan.json"
        if plan is not None:
            plan.write(plan_file)
        elif not plan_file.exists():
            Plan(str(self.flag)).write(plan_file)
        environment |= {
            PLAN_VARIABLE: str(plan_file),  # also what the processes of this scene are known by
            "PYTHONPATH": f"{ROOT / 'tests' / 'faults' / 'site'}:{ROOT}",
            "TMPDIR": str(self.folder / "temporary"),
            "HOME": str(self.folder / "home"),
        }
        self._launches += 1
        places = (f"--model_path={self.input / 'models'}", f"--data_dir={self.input / 'datasets'}", f"--output={self.output}",
                  f"--log_path={self.folder / 'logs'}")  # fmt: skip
        asked = ("bulkinfer", "retry") if retries else ("infer_launch", *WORDS)
        with (self.folder / f"launch-{self._launches}.txt").open("wb") as output:
            return subprocess.Popen(
                [*self._apart(), *command(*asked, *places, *words, *self.place.words)],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _apart(self) -> list[str]:
        """Words before a command that give it a /dev/shm of its own: what is left there is ours, and nobody else's."""
        mount = f'mount --bind "{self.folder / "shared-memory"}" /dev/shm && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", mount, "sh"]

    def finish(self, process: subprocess.Popen[bytes]) -> Launched:
        """Wait for a launch; one that hangs is killed, and its code tells."""
        try:
            process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return Launched(process.returncode, (self.folder / f"launch-{self._launches}.txt").read_text())

    def launch(self, *words: str, plan: Plan | None = None, retries: bool = False) -> Launched:
        """A launch, or a retry, from start to end."""
        return self.finish(self.start(*words, plan=plan, retries=retries))

    def parts(self) -> list[Path]:
        """The published parts, in order of partition and records."""
        return sorted(self.output.glob("part-*.parquet"))

    def rows(self) -> pa.Table:
        """All rows in that order, with all columns."""
        return pa.concat_tables([pq.read_table(path) for path in self.parts()]).replace_schema_metadata(None)

    # -- what must hold ------------------------------------------------------------------------------------------------

    def processes(self) -> list[int]:
        """Processes of this scene that still run, whoever their parent is."""
        marker = f"{PLAN_VARIABLE}={self.folder / 'plan.json'}".encode()
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if marker in _environment(pid)]

    def orphans(self) -> list[str]:
        """Sentences about processes that outlive their launch by more than they may."""
        deadline = time.monotonic() + _GONE_S
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return [f"process {pid} is an orphan" for pid in left]

    def leftovers(self) -> list[str]:
        """Sentences about files that nobody needs any more: temporaries, locks, shared memory."""
        own = own_folder(self.output)
        ours = [*own.iterdir(), *self.output.glob("[._]*"), *(self.folder / "logs").rglob("_*")]
        places = [self.folder / name for name in ("temporary", "shared-memory")]
        others = [path for place in places for path in place.iterdir()]
        return [
            f"{path} was left" for path in [*ours, *others] if path.name not in ("_job.json", "status.json") and path != own
        ]

    def differences(self, errors: Mapping[str, str] | None = None) -> list[str]:
        """Sentences about rows that are not those of the undisturbed run; `errors` is key -> stage of rows that must fail."""
        errors, found, wanted = errors or {}, self.rows(), self.place.rows
        keys = found["key"].to_pylist()
        if keys != wanted["key"].to_pylist():
            missing, extra = sorted(set(wanted["key"].to_pylist()) - set(keys)), len(keys) - len(set(keys))
            return [
                f"{len(keys)} rows: {len(missing)} keys are lost {missing[:3]}, {extra} are doubled, or the order is another"
            ]
        told = []
        for row, expected in zip(found.to_pylist(), wanted.to_pylist(), strict=True):
            if stage := errors.get(row["key"]):
                if (row["status"], row["stage"]) != ("error", stage):
                    told.append(f"{row['key']} should have failed at {stage}: {row['status']} {row['stage']} {row['error']}")
            elif row != expected:
                told.append(f"{row['key']} is {row}, not {expected}")
        return told if told or errors or found.equals(wanted) else ["the columns are not the same"]

    def wrong_books(self) -> list[str]:
        """Sentences about _job.json and summary.json where they do not fit the parts."""
        job = json.loads(job_path(self.output).read_text())
        hashes = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in self.parts()}
        recorded = {name: part["sha256"] for name, part in job["parts"].items()}
        told = [] if job["complete"] else ["_job.json says incomplete"]
        if recorded != hashes:
            told.append(f"_job.json and the parts differ: {sorted(recorded.items() ^ hashes.items())}")
        (summary_file,) = (self.folder / "logs").glob("tiny-*/summary.json")
        summary = json.loads(summary_file.read_text())
        counts = (summary["ok"], summary["errors"])
        statuses = self.rows()["status"].to_pylist()
        if counts != (statuses.count("ok"), statuses.count("error")):
            told.append(f"summary.json counts {counts}")
        return told

    def troubles(self, *, errors: Mapping[str, str] | None = None) -> list[str]:
        """All that is wrong with a job that has run to its end."""
        return [*self.orphans(), *self.leftovers(), *self.differences(errors), *self.wrong_books()]


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # gone meanwhile, or another user's
        return b""


def expect(launched: Launched, codes: Iterable[int], what: str) -> list[str]:
    """A sentence if a launch ended otherwise than with one of `codes`."""
    codes = tuple(codes)
    if launched.code in codes:
        return []
    return [f"{what} ended with {launched.code}, not {' or '.join(map(str, codes))}: {launched.output[-600:]}"]


def again(scene: Scene, *words: str, codes: Iterable[int] = (0,), errors: Mapping[str, str] | None = None) -> list[str]:
    """The same command once more, to its end; everything that is wrong then."""
    found = expect(scene.launch(*words), codes, "the same command again")
    return found or scene.troubles(errors=errors)


def run_cell(place: Place, cell: Cell, folder: Path, *, num_devices: int = 2) -> list[str]:
    """Disturb a launch as `cell` says and run the command again; all that is wrong then, in sentences."""
    if cell.loader_processes:
        place = beside_loader_processes(place, cell.loader_processes)
    scene = Scene(place, folder)
    words = (f"--engine={cell.engine}", f"--num_devices={num_devices if cell.engine == 'local' else 1}")
    launched = scene.launch(*words, plan=cell.plan(str(scene.flag)))
    if not scene.flag.exists():
        return [NOT_REACHED]
    if troubles := [*expect(launched, (cell.code,), "the launch that was hit"), *scene.orphans()]:
        return troubles
    if cell.errors:  # a picture that could not be read: whose row it is depends on who came first
        failed = [row["key"] for row in scene.rows().to_pylist() if row["status"] == "error"]
        if len(failed) != cell.errors:
            return [f"{len(failed)} error rows"]
        return again(scene, *words, codes=(3,), errors=dict.fromkeys(failed, "read"))
    return scene.troubles() if cell.code == 0 else again(scene, *words)  # after a 0 nobody would run it again
