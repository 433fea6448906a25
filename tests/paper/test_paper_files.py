"""paper/*.toml: complete, as the paper has it, and refused where something in it cannot be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from labelloop.errors import UsageError
from labelloop.paper.grids import read_item, read_items
from labelloop.paper.items import details, dry_run, find_item

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


def rows_of(label: str) -> list[tuple[list[str], list[float]]]:
    """The rows of a table of the paper that have numbers: all other cells, and the numbers."""
    text = latex()
    start = text.index(f"\\label{{{label}}}")
    commands = r"\\vspace\{[^}]*\}|\^\\blacklozenge|\\textbf|\\multi(?:row|column)\{[^}]*\}(?:\{[^}]*\})?(?:\[[^]]*\])?"
    found = []
    for line in text[start : text.index("\\end{tabular}", start)].splitlines():
        cells = [re.sub(r"[{}$\\]", "", cell).strip() for cell in re.sub(commands, "", line).split("&")]
        numbers = [float(cell) for cell in cells if re.fullmatch(r"\d+\.\d\d+", cell)]
        if numbers:
            found.append(([cell for cell in cells if not re.fullmatch(r"\d+\.\d\d+|", cell)], numbers))
    return found


def our_name(theirs: str) -> str:
    ours = {"Ours": "closed loop", "Cross-Entropy": "cross-entropy", "Cross-entropy": "cross-entropy"}
    head, _, tail = theirs.partition(" (")
    return f"{ours.get(head, head)} ({tail}" if tail else ours.get(head, head)


@pytest.mark.parametrize("name", ["table1", "table6"])
def test_best_and_last_of_every_method_are_the_papers(name):
    item, found, place, method = ITEMS[name], {}, "", ""
    places = {"CIFAR-10": "cifar10", "CIFAR-100": "cifar100" if name == "table1" else "cifar100-1000"}
    for words, numbers in rows_of(item.label):
        *before, value = words
        place = places[before.pop(0)] if before and before[0] in places else place
        method = our_name(before[0]) if before else method
        found.setdefault(place, {}).setdefault(value.lower(), {})[method] = numbers
    assert found == item.published


def test_the_ablations_are_the_papers():
    found, place = {}, ""
    for words, numbers in rows_of("tab:cifar-ablations"):
        place = {"(a)": "cifar100", "(b)": "cifar100-1000"}.get(words[0], place)
        row = "closed loop" if words[-1] == "Ours" else words[-1].lower()
        found.setdefault(place, {"last": {}})["last"][row] = numbers
    assert found == ITEMS["table2"].published


@pytest.mark.parametrize(("name", "row"), [("table7", "λ = {}"), ("table8", "every {} epochs")])
def test_lambda_and_frequency_are_the_papers(name, row):
    found = {row.format(words[0]): numbers for words, numbers in rows_of(ITEMS[name].label)}
    assert {"cifar100": {"last": found}} == ITEMS[name].published


def test_clothing1m_is_the_papers():
    found = {our_name(words[0]): numbers for words, numbers in rows_of("tab:clothing-main")}
    assert {"clothing1m": {"last": found}} == ITEMS["table3"].published


def test_times_and_memory_are_the_papers():
    ((_, hours),) = rows_of("tab:cifar-time")
    published = ITEMS["table5"].published["cifar100"]["hours"]
    assert [number for (number,) in published.values()] == hours[:-1]
    assert sum(hours[:-1]) == pytest.approx(hours[-1])
    found = {our_name(words[0]): numbers for words, numbers in rows_of("tab:clothing-resource")}
    assert ITEMS["table4"].published["clothing1m"]["hours_an_epoch"] == found
    memory = ITEMS["table4"].published["clothing1m"]["memory_mib"]
    assert memory == {"L2B": [24120], "EMLC": [22190 + 21813], "closed loop": [16915]}
    for number in ("24120", "22190 + 21813", "16915"):
        assert number in latex()


def test_the_papers_numbers_are_all_compared():
    """What stands in [published] of any other item would be compared with nothing."""
    assert {name for name, item in ITEMS.items() if item.published} == {f"table{number}" for number in range(1, 10)}


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
        *(
            "optimizer = SGD",
            "augment = flip, crop",
            "hidden': 256",
            "learning_rate': 0.001",
            "low_learning_rate': 0.0001",
        ),
        *("45000 noisy + 5000 clean rows", "network = resnet34", "epochs = 100", "batch_size = 128"),
        *(
            "learning_rate = 0.1",
            "momentum = 0.9",
            "weight_decay = 0.0005",
            "learning_rate_drops = [60, 80]",
            "learning_rate_factor = 0.1",
        ),
        *("noisy_loss_weight = 0.5", "warm_up = 40", "correct_every = 5", "clean_fit_fraction = 0.8"),
    ):
        assert setting in line
    clothing = next(line for line in dry_run(ITEMS["table3"], "full").splitlines() if "closed loop: clean rows" in line)
    for setting in (
        *(
            "network = resnet50",
            "weights = resnet50.safetensors",
            "epochs = 15",
            "batch_size = 256",
            "correct_every = 3",
        ),
        *(
            "learning_rate = 0.01",
            "momentum = 0.9",
            "weight_decay = 0.0005",
            "learning_rate_drops = [5, 10]",
            "learning_rate_factor = 0.1",
        ),
        *("optimizer = SGD", "augment = resized crop, flip, colour jitter, grey", "noisy_loss_weight = 0.5"),
    ):
        assert setting in clothing
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


@pytest.mark.parametrize("name", ["table1", "Table 1", "tab:main_results"])
def test_a_table_is_found_by_any_of_its_names(name):
    assert find_item(name).name == "table1"


def test_co_teaching_is_told_what_share_of_the_labels_is_wrong():
    rates = {
        (e.noise, e.rate): e.config["noise_rate"]
        for part in ITEMS["table1"].at("small")
        for e in part.experiments
        if e.title == "Co-teaching"
    }
    assert rates["symmetric", 0.4] == 0.36  # a tenth of the draws hits the true class
    assert rates["asymmetric-cifar10", 0.6] == 0.24  # four of ten classes are hit
    assert rates["instance", 0.4] == 0.4
