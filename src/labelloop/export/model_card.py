"""Exports the model of a run: weights, what is needed to load them, and a model card."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from labelloop.errors import DataError, some
from labelloop.runs.files import fresh_folder, read_json
from labelloop.runs.folder import read_metrics
from labelloop.runs.manifest import checked, write_manifest
from labelloop.runs.read import Run
from labelloop.runs.result_files import ABOUT, ENCODER, MODEL_FILES, copy_encoder
from labelloop.runs.schema import MODEL, check

NUMBERS = {
    "test_accuracy": "accuracy on the test rows, after the last epoch",
    "corrected_label_accuracy": "accuracy of the corrected labels, on rows whose true label was given for evaluation",
    "given_label_accuracy": "accuracy of the given labels, on the same rows",
    "clean_accuracy": "accuracy on the clean rows, which trained the correction: not a test",
}
USE = """## How to load it
```python
import labelloop

model = labelloop.load_model("this-folder")
model.predict(X)  # or predict_proba, transform
```
or `labelloop predict this-folder new.csv --output predictions.csv`.

## Limits
It knows only the classes above. Its training labels were corrected automatically: check it on rows that someone \
verified before you rely on it."""


def write_model(run: Run, output: Path) -> None:
    """Writes a folder with model.safetensors, model.json and MODEL_CARD.md."""
    lacking = [name for name in MODEL_FILES if not (run.path / name).exists()]
    if lacking:
        raise DataError(
            f"{run.path} has no {lacking[0]}, so there is no model to export; `labelloop correct` trains none,"
            " `labelloop fit` does"
        )
    card = model_card(run)
    with fresh_folder(output) as partial:
        for name in MODEL_FILES:
            shutil.copyfile(checked(run.path, name), partial / name)
        copy_encoder(run.path, partial)
        (partial / "MODEL_CARD.md").write_text(card, encoding="utf-8")
        write_manifest(partial, (*MODEL_FILES, ENCODER, "MODEL_CARD.md"))


def model_card(run: Run) -> str:
    """The model card, from the records of the run."""
    record, about = run.record, read_json(run.path / ABOUT)
    check(about, MODEL, run.path / ABOUT)
    data = {"source": "unknown", "sha256": None, **record.data}

    def count(name: str) -> str:
        return f"{data.get(name, 0):,}"

    changed = sum(run.labels["changed"].to_pylist())
    settings = json.dumps({"method": record.method, "seed": record.seed, **record.config}, indent=1)
    return "\n".join(
        [
            "---",
            "library_name: labelloop",
            "tags: [classification, noisy-labels]",
            "---",
            "# Model card",
            "",
            f"A classifier for {len(about['classes'])} classes, trained by LabelLoop (method {_code(record.method)}) on"
            " noisy labels and some clean ones.",
            "",
            "## Data",
            f"- source: {_code(Path(data['source']).name)}, {count('rows')} rows (sha256 of the rows"
            f" {_code(data['sha256'])})",
            f"- labels: {count('noisy')} noisy, {count('clean_paired')} with both labels,"
            f" {count('clean_unpaired')} with only a clean label, {count('unlabelled')} without a label",
            f"- given labels that the run changed: {changed:,}",
            f"- inputs: {_inputs(about)}",
            "",
            "## Classes",
            "In the order of the columns of `predict_proba`: " + ", ".join(map(_code, about["classes"])),
            "",
            "## Numbers",
            *_numbers(run),
            f"- stopped by: {_code(record.stop_reason)}; corrections: {len(record.rounds)}",
            "",
            USE,
            "",
            "## How it was made",
            "Versions: " + ", ".join(_code(f"{name} {value}") for name, value in record.versions.items()),
            "",
            "```json",
            settings,
            "```",
            "",
        ]
    )


def _inputs(about: dict[str, Any]) -> str:
    """What the model takes, in words."""
    if form := about.get("encoder_form"):
        how = "fine-tuned, in `trained_encoder` or in the weights" if form.get("trained") else "as it is, not in here"
        kind = "texts" if form["kind"] == "text" else "images"
        return f"{kind}, through the encoder {_code(form['name'])} ({how}; {_code(form['version'])})"
    if names := about["column_names"]:
        return f"{len(names)} columns: {some(map(_code, names), 20)}"
    return f"inputs of shape {tuple(about['input_shape'])}"


def _numbers(run: Run) -> list[str]:
    """The measurements of the last epoch, one line each."""
    last = (read_metrics(run.path) or [{}])[-1]
    numbers = [f"- {text}: {100 * last[key]:.1f}%" for key, text in NUMBERS.items() if last.get(key) is not None]
    if last.get("test_accuracy") is None:
        numbers.append("- no test rows were given, so its accuracy was not measured; use `--test` to measure it")
    return numbers


def _code(text: object) -> str:
    """A text as Markdown shows it and does not obey it: one line, between more backticks than stand inside."""
    words = " ".join(str(text).split())
    marks = "`" * (1 + max(map(len, re.findall("`+", words)), default=0))
    return f"{marks} {words} {marks}" if "`" in words else f"`{words}`"
