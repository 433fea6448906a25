"""paper/*.toml: complete, as the paper has it, and refused where something in it cannot be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from labelloop.errors import UsageError
from labelloop.experiments.paper import details, dry_run, find_item
from labelloop.experiments.paper_files import read_item, read_items

ROOT = Path(__file__).resolve().parents[2]
PAPER = ROOT.parent / "shared" / "paper" / "000_ecbab4be6555f1e3.txt"
# The paper's tables and figures by their LaTeX labels.
LABELS = {
    *("tab:main_results", "tab:cifar-ablations", "tab:clothing-main", "tab:clothing-resource", "tab:cifar-time"),
    *("tab:main_results_1000", "tab:cifar-lambda", "tab:cifar-frequency", "tab:experiment-details"),
    *("fig:method", "fig:cifar-dynamic", "fig:cifar-time", "fig:clothing_acc", "fig:clothing_err", "fig:cifar10"),
    "fig:cifar100",
}
ITEMS = read_items()


def latex() -> str:
    if not PAPER.exists():
        pytest.skip("the paper's text is not here")
    return PAPER.read_text(encoding="utf-8")


def test_nothing_of_the_paper_is_left_out():
    assert {item.label for item in ITEMS.values() if item.label} == LABELS


def test_these_are_the_labels_in_the_paper():
    assert set(re.findall(r"\\label\{((?:tab|fig):[^}]+)\}", latex())) == LABELS


def test_every_number_of_the_paper_stands_in_its_table():
    text, looked_at = latex(), 0
    for name in ("table1", "table2", "table3", "table5", "table6", "table7", "table8"):
        item = ITEMS[name]
        start = text.index(f"\\label{{{item.label}}}")
        table = text[start : text.index("\\end{tabular}", start)]
        theirs = [float(number) for number in re.findall(r"\d+\.\d{2,3}", table)]
        ours = [
            number
            for values in item.published.values()
            for rows in values.values()
            for row in rows.values()
            for number in row
        ]
        if name == "table1":
            theirs = theirs[theirs.index(91.13) :]  # before it are widths
        missing = [number for number in ours if number not in theirs]
        assert not missing, f"{name}: {missing} are not in the paper"
        looked_at += len(ours)
    assert looked_at == 216 + 54 + 10 + 5 + 90 + 27 + 27


def test_rows_of_the_paper_are_transcribed_in_order():
    text, looked_at = latex(), 0
    numbers = [float(number) for number in re.findall(r"(?<![\d.])\d+\.\d{2,3}(?![\d.])", text)]
    joined = " ".join(f"{number:g}" for number in numbers)
    for item in ITEMS.values():
        for values in item.published.values() if item.shows == "accuracy" else ():
            for rows in values.values():
                for row in rows.values():
                    if len(row) == 9:
                        looked_at += 1
                        assert " ".join(f"{number:g}" for number in row) in joined, row
    assert looked_at == 24 + 6 + 10 + 3 + 3


def test_the_full_scale_has_the_papers_experimental_details():
    item, compared = ITEMS["table9"], 0
    ours = [details(part.experiments[0]) for part in item.at("full")]
    assert [part.protocol for part in item.at("full")] == ["cifar10", "cifar100", "clothing1m"]
    for name, values in item.published["details"].items():
        for mine, theirs in zip(ours, values, strict=True):
            assert mine[name] == theirs, name
            compared += 1
    assert compared == 19 * 3


def test_the_details_in_the_paper_are_those_of_the_file():
    text = latex()
    table = text[text.index("\\label{tab:experiment-details}") :]
    for line in (
        r"{Architecture} & ResNet-34 & ResNet-34 & ResNet-50",
        r"{Training Epochs} & 100 & 100 & 15",
        r"{Batch Size} & $128$ & $128$ & $256$",
        r"{Momentum} & $0.9$ & $0.9$ & $0.9$",
        r"{Initial LR} & $0.1$ & $0.1$ & $0.01$",
        r"{Scheduler Milestone} & $60,80$ & $60,80$ & $5,10$",
        r"{Label Correction Frequency} & 5  & 5  &  3",
    ):
        assert line in table


def test_a_dry_run_of_the_full_scale_says_what_the_paper_does():
    text = dry_run(ITEMS["table1"], "full")
    line = next(line for line in text.splitlines() if line.strip().startswith("closed loop: 45000 noisy"))
    for setting in (
        *("45000 noisy + 5000 clean rows", "network = resnet34", "epochs = 100", "batch_size = 128"),
        *("learning_rate = 0.1", "momentum = 0.9", "weight_decay = 0.0005", "lr_drops = [60, 80]", "lr_factor = 0.1"),
        *("noisy_loss_weight = 0.5", "warm_up = 40", "correct_every = 5", "clean_fit_fraction = 0.8"),
    ):
        assert setting in line
    assert "49000 noisy + 1000 clean rows" in dry_run(ITEMS["table6"], "full")
    assert "'clean_fraction': 0.1" in dry_run(ITEMS["table3"], "full") or "clean_fraction = 0.1" in dry_run(
        ITEMS["table3"], "full"
    )


def test_ablations_differ_from_the_loop_in_one_setting():
    cells = {e.title: e.method_config for part in ITEMS["table2"].at("full")[:1] for e in part.experiments}
    loop = cells.pop("closed loop")
    for title, config in cells.items():
        differing = [key for key in vars(loop) if getattr(loop, key) != getattr(config, key)]
        assert len(differing) == 1, title
    lambdas = {e.title: e.method_config.noisy_loss_weight for e in ITEMS["table7"].at("full")[0].experiments}
    assert lambdas == {"λ = 0.2": 0.2, "λ = 0.5": 0.5, "λ = 1.0": 1.0}
    every = {e.title: e.method_config.correct_every for e in ITEMS["table8"].at("full")[0].experiments}
    assert every == {"every 5 epochs": 5, "every 8 epochs": 8, "every 10 epochs": 10}


def test_co_teaching_is_told_the_rate_of_each_cell():
    rates = {
        (e.rate, e.method_config.noise_rate)
        for part in ITEMS["table1"].at("small")
        for e in part.experiments
        if e.method == "co-teaching"
    }
    assert rates == {(0.2, 0.2), (0.4, 0.4), (0.6, 0.6), (0.172, 0.172)}


@pytest.mark.parametrize("name", ["table1", "Table 1", "tab:main_results"])
def test_a_table_is_found_by_any_of_its_names(name):
    assert find_item(name).name == "table1"


def test_an_unknown_table_is_answered_with_the_nearest():
    with pytest.raises(UsageError, match="table1"):
        find_item("tabel1")


def write(folder: Path, item: str, common: str = "") -> Path:
    common = common or (
        '[protocols.p]\nscale = "small"\ntitle = "p"\ndataset = "digits"\nclean = 20\nrecipe = "paper"\nseed = [0]\n'
        '[rows."a"]\nmethod = "cross-entropy"\n'
    )
    (folder / "common.toml").write_text(common, encoding="utf-8")
    (folder / "t.toml").write_text(
        f'place = "T"\nlabel = "l"\ntitle = "t"\nshows = "accuracy"\n{item}', encoding="utf-8"
    )
    return folder


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ('[[runs]]\nprotocol = "q"\nrows = ["a"]\n', "unknown protocol 'q'"),
        ('[[runs]]\nprotocol = "p"\nrows = ["b"]\n', "unknown row 'b'"),
        ('[[runs]]\nprotocol = "p"\nrows = ["a"]\nnoize = ["symmetric"]\n', "unknown key 'noize'"),
        ('value = ["last"]\n', "unknown key 'value'"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(tmp_path, item, words):
    with pytest.raises(UsageError, match=words):
        read_item("t", write(tmp_path, item))
