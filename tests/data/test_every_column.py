"""Every column counts: categories with many values, money and percent, texts, embeddings beside columns."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labelloop.data.encoding import encode_columns, from_json, number_style, signed_number, to_json
from labelloop.data.readers import ReadOptions, read_table
from labelloop.data.words import Words, fit_words, words_as_numbers
from labelloop.errors import DataError


def rows(path, head, lines):
    path.write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "style", "number"),
    [
        ("$1,025.21", "1,234.5", 1025.21),
        ("-$5", "1,234.5", -5),
        ("-01:30", "hh:mm", -1.5),
        ("(0:45)", "hh:mm", -0.75),
        ("$ 5", "1,234.5", 5),
        ("12%", "1,234.5", 12),
        ("1,751", "1,234.5", 1751),
        ("(1,234)", "1,234.5", -1234),
        ("-12.5 kg", "1,234.5", -12.5),
        ("1,75", "1,234.5", None),
        ("12,3456", "1,234.5", None),
        ("USD 12", "1,234.5", 12),
        ("ABC123", "1,234.5", None),
        ("1.025,21 €", "1.234,5", 1025.21),
        ("1,5", "1.234,5", 1.5),
        ("1 025,5", "1 234.5", 1025.5),
        ("2'500", "1 234.5", 2500),
        ("12:30", "1,234.5", None),
        ("1.2.3", "1,234.5", None),
    ],
)
def test_a_number_with_signs(text, style, number):
    assert signed_number(text, style) == number


def test_codes_are_no_numbers_with_signs():
    assert number_style(["12a", "13b", "14c"], 0.9) is None
    assert number_style(["1K", "2M", "3K"], 0.9) is None
    assert number_style(["10 kg", "12 kg"], 0.9) == "1,234.5"
    assert number_style(["10 kg", "12 lb"], 0.9) is None
    assert number_style(["1,5", "2,25"], 0.9) == "1.234,5"


def test_money_percent_and_thousands_are_numbers_and_said(tmp_path):
    lines = [f'"${1000 + i:,}.50",{i}%,"{i * 1000:,}",{"ab"[i % 2]}' for i in range(20)]
    path = rows(tmp_path / "a.csv", "price,share,pop,label", lines)
    table = read_table(path)
    assert table.column_names == ("price", "share", "pop")
    np.testing.assert_array_equal(table.inputs[3], np.array([1003.5, 3, 3000], np.float32))
    assert "'price' is read as numbers: '$1,000.50' as 1000.5" in table.schema_summary.remarks
    again = read_table(path, ReadOptions(encoding=from_json(json.loads(json.dumps(to_json(table.encoding))), "x")))
    np.testing.assert_array_equal(again.inputs, table.inputs)


def test_a_slip_among_money_is_refused_with_its_row(tmp_path):
    lines = [f"${i}.50,{'ab'[i % 2]}" for i in range(30)]
    path = rows(tmp_path / "a.csv", "price,label", [*lines, "free,a"])
    with pytest.raises(DataError, match="column 'price' is not numbers: row 30 holds 'free'"):
        read_table(path)


def test_two_currencies_are_said(tmp_path):
    lines = [f"{'$€'[i % 2]}{i}.50,{'ab'[i % 2]}" for i in range(30)]
    said = read_table(rows(tmp_path / "a.csv", "price,label", lines)).schema_summary.remarks
    assert any("written with '$', '€', all read as the same unit" in remark for remark in said)


def test_a_category_with_many_values_keeps_the_frequent_ones(tmp_path):
    values = [f"c{i % 140:03d}" for i in range(840)]
    path = rows(tmp_path / "a.csv", "country,label", [f"{v},{'ab'[i % 2]}" for i, v in enumerate(values)])
    table = read_table(path)
    assert table.inputs.shape == (840, 140)
    assert (table.inputs.sum(axis=1) == 1).all()
    wide = [f"c{i % 500:03d}" for i in range(2000)]
    table = read_table(rows(tmp_path / "b.csv", "c,label", [f"{v},{'ab'[i % 2]}" for i, v in enumerate(wide)]))
    assert table.inputs.shape[1] <= 385
    assert table.encoding[0].other


def test_codes_of_digits_are_categories_when_asked(tmp_path):
    lines = [f"{i % 5:05d},{i},{'ab'[i % 2]}" for i in range(50)]
    path = rows(tmp_path / "a.csv", "zip,x,label", lines)
    table = read_table(path, ReadOptions(category_columns=("zip",)))
    assert table.column_names[:2] == ("zip=00000", "zip=00001")
    with pytest.raises(DataError, match="no column 'zap'"):
        read_table(path, ReadOptions(category_columns=("zap",)))


def test_words_by_hand():
    """Two texts of one word each out of two: TF-IDF rows are unit vectors, so directions are the axes."""
    texts = np.array(["red", "red", "red", "red", "blue", "blue", "blue", "blue"], dtype=object)
    words = fit_words(texts, 1)
    assert words.terms == ("blue", "red")
    idf = np.log(9 / 5) + 1
    np.testing.assert_allclose(words.weights[:, 0], [idf, idf], rtol=1e-6)
    exact = Words(("blue", "red"), np.array([[idf, 1, 0], [idf, 0, 1]], np.float32))
    found = words_as_numbers(exact, np.array(["red", "blue red", None, "green", "Blue blue"], dtype=object))
    half = np.sqrt(0.5)
    np.testing.assert_allclose(found, [[0, 1], [half, half], [0, 0], [0, 0], [1, 0]], rtol=1e-6)


def test_a_column_of_sentences_needs_no_flag(tmp_path):
    words = ["good fine great", "bad poor awful"]
    lines = [f"this was {words[i % 2].split()[i % 3]} number {i},{i},{'ab'[i % 2]}" for i in range(60)]
    path = rows(tmp_path / "a.csv", "note,x,label", lines)
    table = read_table(path)
    kinds = {use.column: use.how for use in table.schema_summary.features}
    assert kinds["x"] == "number"
    assert kinds["note"].startswith("text, as ")
    stored = from_json(json.loads(json.dumps(to_json(table.encoding))), "model.json")
    again = read_table(path, ReadOptions(encoding=stored))
    assert again.inputs.tobytes() == table.inputs.tobytes()


def test_a_stored_encoding_of_words_is_checked():
    column = to_json([_text_column()])[0]
    for wrong in (
        {**column, "words": {"shape": [9, 9], "float32": "AAAA"}},
        {**column, "words": {"shape": column["words"]["shape"], "float32": "####"}},
        {**column, "words": "x"},
        {**column, "levels": [1] * len(column["levels"])},
    ):
        with pytest.raises(DataError, match="the description of the columns cannot be read"):
            from_json([wrong], "model.json")


def _text_column():
    from labelloop.data.encoding import fit_text

    texts = np.array(["red car", "blue car", "red bike", "blue bike"] * 5, dtype=object)
    return fit_text("t", texts, np.ones(20, bool), 4)


def test_new_words_are_zeros_and_nothing_else():
    column = _text_column()
    _, values, remarks = encode_columns([column], {"t": np.array(["green lorry", "red car"], dtype=object)})
    assert not values[0].any()
    assert values[1].any()
    assert remarks == []


def test_an_embedding_stands_beside_columns_and_texts(tmp_path):
    texts = [f"{['good fine', 'bad poor'][i % 2]} thing {i % 7}" + " x" * (i % 5) + f" {i}" for i in range(40)]
    columns = {"embedding": np.eye(4)[np.arange(40) % 4].tolist(), "note": texts, "size": np.arange(40.0) % 7}
    pq.write_table(pa.table({**columns, "label": ["a", "b"] * 20}), tmp_path / "a.parquet")
    table = read_table(tmp_path / "a.parquet")
    assert [use.column for use in table.schema_summary.features] == ["embedding", "note", "size"]
    assert table.column_names[:5] == ("embedding[0]", "embedding[1]", "embedding[2]", "embedding[3]", "note~0")


def test_no_label_takes_part_in_the_encoding(tmp_path):
    values = [f"c{i % 40:03d}" for i in range(200)]
    texts = [f"w{i % 9} v{i % 11} number {i}" for i in range(200)]
    lines = [f"{v},{t}" for v, t in zip(values, texts, strict=True)]
    first = rows(tmp_path / "a.csv", "c,t,label", [f"{line},{'ab'[i % 2]}" for i, line in enumerate(lines)])
    second = rows(tmp_path / "b.csv", "c,t,label", [f"{line},{'ab'[i % 3 > 0]}" for i, line in enumerate(lines)])
    named = ReadOptions(text_columns=("t",), category_columns=("c",))
    assert read_table(first, named).inputs.tobytes() == read_table(second, named).inputs.tobytes()


def test_a_wide_column_that_says_nothing_is_left_out_and_said(tmp_path):
    rng = np.random.default_rng(0)
    true = np.arange(300) % 3
    words = [f"w{j}" for j in range(60)]
    idle = [" ".join(rng.choice(words, 4)) + f" {i}" for i in range(300)]
    telling = [" ".join(rng.choice(words[20 * k : 20 * k + 20], 4)) + f" {i}" for i, k in enumerate(true)]
    lines = [f"{k + rng.normal():.3f},{a},{b},{'abc'[k]}" for k, a, b in zip(true, idle, telling, strict=True)]
    path = rows(tmp_path / "a.csv", "x,idle,telling,label", lines)
    with pytest.warns(UserWarning, match="'idle' .as a text it does not help to predict the given label"):
        table = read_table(path)
    assert [use.column for use in table.schema_summary.features] == ["x", "telling"]
    asked = read_table(path, ReadOptions(text_columns=("idle",)))
    assert [use.column for use in asked.schema_summary.features] == ["x", "idle", "telling"]


def test_the_only_column_is_never_left_out_for_saying_nothing(tmp_path):
    rng = np.random.default_rng(0)
    words = [f"w{j}" for j in range(40)]
    lines = [" ".join(rng.choice(words, 4)) + f" {i},{'ab'[i % 2]}" for i in range(200)]
    assert read_table(rows(tmp_path / "a.csv", "t,label", lines)).encoding[0].kind == "text"
