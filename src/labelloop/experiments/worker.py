"""One experiment in a process of its own: `python -m labelloop.experiments.worker FOLDER RESULT`.

FOLDER/experiment.json says what to run; RESULT is the record that it leaves.
"""

from __future__ import annotations

import json
import shutil
import sys
import traceback
from pathlib import Path

import torch

from labelloop.errors import DataError, UsageError
from labelloop.experiments.experiment import Experiment, run_experiment
from labelloop.results.run_folder import read_json, write_atomically


def main(folder: Path, result: Path) -> int:
    """Runs the experiment and leaves its record, or failure.txt with the reason."""
    torch.set_num_threads(1)
    failure = folder / "failure.txt"
    try:
        record = run_experiment(Experiment(**read_json(folder / "experiment.json")), folder / "run", progress=False)
    except (DataError, UsageError) as error:
        failure.write_text(f"{error}\n", encoding="utf-8")
        return 1
    except Exception:  # whatever a method does wrong must not stop the other runs
        failure.write_text(traceback.format_exc(), encoding="utf-8")
        return 1
    text = json.dumps(record) + "\n"
    write_atomically(result, lambda place: place.write_text(text, encoding="utf-8"))
    failure.unlink(missing_ok=True)
    shutil.rmtree(folder / "run")  # its checkpoint is large, and all that counts is in the result
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
