"""Stored files never choose code: models, configurations and grids of a stranger import and run nothing."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from strangers import ROWS, change, corrected_run, model, told

from labelloop import load_model
from labelloop.errors import DataError
from labelloop.trust import PRETRAINED, Stored

FORM = {"name": "evil:factory", "kind": "text", "version": "", "trained": False, "column": "text"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which a module waits to be imported, which the tests look for afterwards."""
    ran = tmp_path / "ran"
    source = f"from pathlib import Path\nPath({str(ran)!r}).touch()\ndef factory(*a, **k): return None\n"
    (tmp_path / "evil.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("evil", None)
    return tmp_path


def says(about: dict[str, object], **changes: object) -> dict[str, object]:
    return {**about, **changes}


def commands(here: Path) -> dict[str, dict[str, object]]:
    run = f"touch {here / 'ran'}"
    return {
        "os:system": {"network": "os:system", "network_options": {"command": run}},
        "getoutput": {"network": "subprocess:getoutput", "network_options": {"cmd": run}},
        "own network": {"network": "evil:factory"},
        "near the built-in one": {"network": f"{PRETRAINED}.", "network_options": {"encoder": "words"}},
        "prefixed": {"network": "labelloop.encoders.network:pretrained.__globals__", "network_options": {}},
        "encoder of the network": {
            "network": PRETRAINED,
            "network_options": {"encoder": "evil:factory", "kind": "text"},
        },
        "encoder": {"encoder_form": FORM},
        "older encoder": {"text_form": {"embedder": "evil:factory", "column": "text"}},
        "no encoder at all": {"network": PRETRAINED, "network_options": {}},
        "not a name": {"network": ["os:system"]},
        "not options": {"network_options": "hidden"},
    }


@pytest.mark.parametrize("case", sorted(commands(Path())))
def test_a_model_that_names_code_is_refused(here: Path, case: str) -> None:
    """Both in Python and on the command line, with the file and the field in the message; nothing runs."""
    folder = model(here / "model")
    change(folder / "model.json", lambda about: says(about, **commands(here)[case]))
    with pytest.raises(DataError, match=r"model\.json: (network|encoder_form)"):
        load_model(folder)
    file = "texts.csv" if "encoder" in case else "new.csv"
    ended = told("predict", folder, here / file)
    assert (ended.code, ended.err.count("\n")) == (1, 1)
    assert "model.json" in ended.err
    assert not (here / "ran").exists()
    assert "evil" not in sys.modules


@pytest.mark.parametrize("case", ["os:system", "getoutput", "own network", "encoder", "encoder of the network"])
def test_a_model_that_an_export_passes_on_runs_nothing(here: Path, case: str) -> None:
    """A stranger's run names code in its model.json: the export runs none, and who gets the model is as safe."""
    run = corrected_run(here / "run")
    shutil.copytree(model(here / "model"), run, dirs_exist_ok=True)
    change(run / "model.json", lambda about: says(about, **commands(here)[case]))
    ended = told("export", run, "--to", "model", "--output", here / "passed-on")
    assert (ended.code, "Traceback" in ended.err) == (0, False), ended.err
    ended = told("predict", here / "passed-on", here / ("texts.csv" if "encoder" in case else "new.csv"))
    assert (ended.code, ended.err.count("\n"), "model.json" in ended.err) == (1, 1, True), ended.err
    with pytest.raises(DataError, match="names code to run"):
        load_model(here / "passed-on")
    assert not (here / "ran").exists()
    assert "evil" not in sys.modules


def test_trusted_code_runs_and_is_announced(here: Path) -> None:
    folder = model(here / "model")
    change(folder / "model.json", lambda about: says(about, encoder_form=FORM))
    with pytest.warns(UserWarning, match=r"model\.json: encoder_form.name imports 'evil:factory'"):
        load_model(folder, trust_code=True)
    change(folder / "model.json", lambda about: says(about, network="evil:factory", encoder_form=None))
    ended = told("predict", folder, here / "new.csv", "--trust-code")
    assert "imports 'evil:factory'" in ended.err
    assert (here / "ran").exists()


def test_an_encoder_that_the_user_types_needs_no_trust(here: Path) -> None:
    folder = model(here / "model")
    change(folder / "model.json", lambda about: says(about, encoder_form=FORM))
    assert load_model(folder, encoder="words").encoder_place == "words"


def test_the_network_of_older_runs_is_built_in(tmp_path: Path) -> None:
    """The name that runs with a trained encoder store is one of ours, and only that very name."""
    stored = Stored(tmp_path / "model.json")
    stored.check_network(PRETRAINED, {"encoder": "timm:resnet18", "kind": "image"})
    stored.check_network("mlp", {"hidden": [4]})
    for name in (f" {PRETRAINED}", f"{PRETRAINED}2", "labelloop.encoders.network:SentenceNetwork"):
        with pytest.raises(DataError, match="names code to run"):
            stored.check_network(name, {"encoder": "timm:resnet18"})


@pytest.mark.parametrize("file", ["modules.json", "config.json", "evil.py", "pytorch_model.bin", "inner/x.pkl"])
def test_a_trained_encoder_with_code_in_its_folder_is_refused(here: Path, file: str) -> None:
    """The libraries run code that stands beside a model in a folder, and unpickle weights."""
    folder = model(here / "model")
    place = folder / "trained_encoder" / file
    place.parent.mkdir(parents=True)
    listed = [{"idx": 0, "name": "0", "path": "", "type": "evil.Evil"}]
    content = listed if file == "modules.json" else {"auto_map": {"AutoModel": "evil.Evil"}}
    place.write_text(json.dumps(content))
    form = {**FORM, "name": "sentence-transformers:all-MiniLM-L6-v2", "trained": True}
    options = {"encoder": form["name"], "kind": "text"}
    change(
        folder / "model.json",
        lambda about: says(about, network=PRETRAINED, network_options=options, encoder_form=form),
    )
    with pytest.raises(DataError, match="names code to run"):
        load_model(folder)
    with pytest.raises(DataError, match="names code to run"):
        Stored(here / "model.json").check_encoder(f"transformers:{folder / 'trained_encoder'}", "encoder")
    with pytest.raises(DataError, match="names code to run"):
        Stored(here / "model.json").check_encoder(f"timm:local-dir:{folder / 'trained_encoder'}", "encoder")


@pytest.mark.parametrize(
    "place",
    [
        "LOCAL-DIR:evil",
        " local-dir:evil",
        "local-dir:evil?x",
        "local-dir:evil#x",
        "local-dir:ev\til",
        "local-dir://evil",
    ],
)
def test_no_spelling_of_a_folder_gets_past_the_check(here: Path, place: str) -> None:
    """timm compares prefixes in lower case, and older versions read the rest as an address: they would unpickle it."""
    (here / "evil").mkdir()
    (here / "evil" / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(DataError, match="must be the name of an encoder"):
        Stored(here / "model.json").check_encoder(f"timm:{place}", "encoder")
    for known in ("timm:resnet18.a1_in1k", "timm:hf-hub:timm/resnet18", "transformers:facebook/dinov2-small"):
        Stored(here / "model.json").check_encoder(known, "encoder")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("1_Dense/config.json", {"activation_function": "evil.run"}),
        ("router_config.json", {"types": {"query_0": "evil.Part"}}),
        ("adapter_config.json", {"base_model_name_or_path": "../evil"}),
        ("model.safetensors.index.json", {"weight_map": {"a": "../evil/pytorch_model.bin"}}),
    ],
)
def test_what_a_library_would_import_for_a_part_of_a_model_is_refused(here: Path, file: str, content: object) -> None:
    """sentence-transformers before 6.0 trusts a folder, and imports what its parts name."""
    place = here / "encoder" / file
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(content))
    with pytest.raises(DataError, match="names code to run"):
        Stored(here / "model.json").check_folder(here / "encoder", "encoder")
    place.write_text(json.dumps({"activation_function": "torch.nn.modules.activation.Tanh", "type": "BPE"}))
    if file != "adapter_config.json":
        Stored(here / "model.json").check_folder(here / "encoder", "encoder")


def test_code_behind_a_linked_folder_is_refused(here: Path) -> None:
    (here / "elsewhere").mkdir()
    (here / "elsewhere" / "evil.py").touch()
    (here / "encoder").mkdir()
    (here / "encoder" / "1_Pooling").symlink_to(here / "elsewhere")
    with pytest.raises(DataError, match="names code to run"):
        Stored(here / "model.json").check_folder(here / "encoder", "encoder")


def test_a_configuration_file_names_no_code(here: Path) -> None:
    (here / "rows.csv").write_text(ROWS)
    (here / "settings.toml").write_text('network = "evil:factory"\n')
    command = ("fit", "rows.csv", "--output-dir", "run", "--recipe", "paper", "--config", "settings.toml", "--quiet")
    ended = told(*command)
    assert ended.code == 1
    assert "settings.toml: network names code to run, 'evil:factory'" in ended.err
    assert "--trust-code" in ended.err
    assert not (here / "run").exists()
    assert not (here / "ran").exists()
    assert "imports 'evil:factory'" in told(*command, "--trust-code").err
    assert (here / "ran").exists()


def test_what_is_typed_is_the_users_own(here: Path) -> None:
    (here / "rows.csv").write_text(ROWS)
    told("fit", "rows.csv", "--output-dir", "run", "--recipe", "paper", "--set", "network=evil:factory", "--quiet")
    assert (here / "ran").exists()


def test_a_grid_names_no_code(here: Path) -> None:
    content = 'dataset = "digits"\nclean = 50\nnoise = "symmetric"\nrate = 0.2\nmethod = "cross-entropy"\n'
    (here / "grid.toml").write_text(content + '[config]\nnetwork = "evil:factory"\n')
    ended = told("bench", "grid.toml", "--dry-run")
    assert ended.code == 1
    assert "grid.toml: config.network names code to run" in ended.err
    assert not (here / "ran").exists()


@pytest.mark.parametrize("text", ["x = " + "[" * 100_000, ".".join("a" * 5000) + " = 1", "epochs = " + "9" * 5000])
def test_a_configuration_cannot_be_too_deep_or_too_long(here: Path, text: str) -> None:
    (here / "rows.csv").write_text(ROWS)
    (here / "settings.toml").write_text(text)
    for command in (("fit", "rows.csv", "--output-dir", "run", "--config"), ("bench", "--dry-run")):
        ended = told(*command, "settings.toml")
        assert (ended.code, ended.err.count("\n"), "settings.toml is not" in ended.err) == (2, 1, True), ended.err


def test_a_number_beyond_all_numbers_is_one_line(here: Path) -> None:
    (here / "rows.csv").write_text(ROWS)
    (here / "settings.toml").write_text("learning_rate = 1" + "0" * 400)
    (here / "grid.toml").write_text("rate = 1" + "0" * 400)
    for command in (("fit", "rows.csv", "--output-dir", "run", "--config", "settings.toml"), ("bench", "grid.toml")):
        ended = told(*command)
        assert (ended.code, ended.err.count("\n"), "must be a" in ended.err) == (2, 1, True), ended.err
