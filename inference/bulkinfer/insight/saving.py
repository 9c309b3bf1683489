"""What to type where a job did not save the column that is needed."""

from __future__ import annotations

from pathlib import Path

from bulkinfer.files.addresses import address_of
from bulkinfer.files.user_path import unused_beside
from bulkinfer.launch.jobs.begun_config import begun_config, command_with
from bulkinfer.model.card import readable_card
from bulkinfer.model.stored_network import read_stored_card
from bulkinfer.results.job_file import JobFile
from bulkinfer.results.reader import Results


def again_with(results: Results, *columns: str) -> str:
    """The advice to run the job again with one of `columns` saved as well, into an output that does not exist yet.

    It is the first one that the network gives: "topk", or the name of an output such as "embedding". If it gives none of them,
    as its card says, the advice is what it gives.
    """
    job = JobFile.read(results.output)
    assert job is not None, "what has results has a _job.json"
    begun = begun_config(job, results.output)
    address = address_of(begun.model_path).rstrip("/")
    card = read_stored_card(address, begun.model_name) if address else readable_card(Path(begun.model_path) / begun.model_name)
    given = columns if card is None else [*(["topk"] if card.classified else []), *card.outputs]
    column = next((column for column in columns if column in given), "")
    if not column:
        return f"its network gives only {', '.join(given)}"
    kept = [name for name in begun.save if name not in ("none", column)]
    command = command_with(begun, save=(*kept, column), output=str(unused_beside(results.output)), overwrite=False)
    return f"to save {column}, run: {command}"
