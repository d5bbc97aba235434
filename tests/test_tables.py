"""Test kinds of columns, the preparation of tables, and their use in the command and `compare`."""

import decimal
import io
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris, load_wine
from sklearn.pipeline import make_pipeline

import vicinal
from vicinal import TableEncoder
from vicinal import io as model_io
from vicinal._tables import dependent_columns
from vicinal.cli import main
from vicinal.tables import ColumnType, TableError, column_types, prepare

RNG = np.random.default_rng(0)
N = 60
NORMAL = RNG.normal(size=N)
pytestmark = pytest.mark.usefixtures("short_search_in_this_file")


def kind_of(values, name="x"):
    return column_types(pd.DataFrame({name: values}))[name]


KINDS = [
    ("continuous", NORMAL),
    ("continuous", NORMAL.astype(np.float32)),
    ("continuous", RNG.choice(10**6, size=N, replace=False)),  # whole, but far finer than their spread
    ("lattice", RNG.integers(0, 9, size=N)),
    ("lattice", NORMAL.round(1)),
    ("lattice", NORMAL.astype(np.float32).round(1)),
    ("lattice", 1000 * RNG.integers(20, 90, size=N)),
    ("boolean", RNG.integers(0, 2, size=N)),
    ("boolean", RNG.integers(0, 2, size=N) * 3.7 - 1),
    ("boolean", RNG.integers(0, 2, size=N).astype(bool)),
    ("boolean", pd.array([True, None, False] * 20, dtype="boolean")),
    ("category", RNG.choice(["a", "b", "c"], size=N)),
    ("text", [f"note {i // 1.05:.0f}" for i in range(N)]),
    ("identifier", [f"row {i}" for i in range(N)]),
    ("identifier", 5000 + RNG.permutation(N)),
    ("counter", np.arange(N)),
    ("counter", np.where(np.arange(N) == 7, np.nan, np.arange(N) + 40.0)),
    ("constant", np.ones(N)),
    ("constant", ["same"] * N),
    ("empty", np.full(N, np.nan)),
    ("date", pd.date_range("2024-01-01", periods=N)),
    ("date", pd.Series(pd.date_range("2024-01-01", periods=N)).dt.strftime("%Y-%m-%d")),
    ("date", pd.Series(pd.date_range("2024-01-01 10:20", periods=N, freq="7h")).dt.strftime("%d.%m.%Y %H:%M")),
]


@pytest.mark.parametrize(("kind", "values"), KINDS)
def test_kinds(kind, values):
    assert kind_of(values).kind == kind


def test_a_few_years_in_order_are_no_counter():
    assert kind_of(np.array([0.0, 1.0, 2.0])).kind == kind_of(np.array([1.0, 2.0, 3.0])).kind == "counter"
    assert kind_of(np.arange(2015.0, 2024.0)).kind != "counter"


def test_names_tell_identifiers():
    codes = RNG.integers(5, size=N)
    assert kind_of(codes, "store_id").kind == "identifier"
    assert kind_of(codes, "width").kind == "lattice"  # "id" inside a word is no id


@pytest.mark.parametrize(
    ("values", "step", "offset"),
    [
        (RNG.integers(0, 9, size=N), 1.0, 0.0),
        (NORMAL.round(2), 0.01, 0.0),
        (0.25 + 0.5 * RNG.integers(0, 9, size=N), 0.5, 0.25),
        (1000 * RNG.integers(20, 90, size=N), 1000.0, 0.0),
        ((RNG.integers(0, 9, size=N) - 3.3) / 1.7, 1 / 1.7, None),  # standardised counts have no short decimals
    ],
)
def test_steps_and_offsets(values, step, offset):
    found = kind_of(values)
    assert found.kind == "lattice"
    assert found.step == pytest.approx(step, rel=1e-9)
    if offset is not None:
        assert found.offset == pytest.approx(offset)
    away = (np.asarray(values) - found.offset) / found.step
    np.testing.assert_allclose(away, np.rint(away), atol=1e-6)


def test_a_few_entries_of_another_precision_do_not_hide_the_step():
    """One wine has a colour of 9.899999 where all others have two digits; a step of 1e-6 would undo no rounding."""
    types = column_types(load_wine(as_frame=True).data)
    assert types["color_intensity"].step == 0.01


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda rng, n: np.log1p(rng.integers(0, 5, n)).round(5), "tied"),  # five values, five decimals
        (lambda rng, n: rng.choice([0.0, 3.219, 3.912, 4.605], n), "tied"),
        (lambda rng, n: np.exp(rng.normal(3.0, 0.5, n)).round(2), "lattice"),  # cents
        (lambda rng, n: rng.poisson(3.0, n), "lattice"),
        (lambda rng, n: np.where(rng.random(n) < 0.05, 999_999, rng.integers(0, 11, n)), "lattice"),
        (
            lambda rng, n: ((rng.normal(55, 6, n).round() - 32) / 1.8).round(1),
            "lattice",
        ),  # whole degrees Fahrenheit in Celsius
        (lambda rng, n: rng.uniform(size=n).round(8), "continuous"),
        (lambda rng, n: rng.normal(size=n).astype(np.float32), "continuous"),
    ],
)
def test_kind_of_a_column_does_not_depend_on_the_number_of_rows(make, kind):
    for n in (80, 240, 1_000, 20_000):
        assert kind_of(make(np.random.default_rng(n), n)).kind == kind


def test_a_lattice_that_was_stored_in_float32_is_recognised():
    """690.8 in float32 is printed as 690.799987792969."""
    once = np.random.default_rng(0).normal(690, 20, N).round(1).astype(np.float32)
    printed = np.array([float(f"{value:.15g}") for value in once.astype(np.float64)])
    for values in (once, once.astype(np.float64), printed):
        assert kind_of(values).step == 0.1


def test_the_step_of_converted_values_is_that_before_the_conversion():
    celsius = ((np.random.default_rng(0).normal(55, 6, 500).round() - 32) / 1.8).round(1)
    assert kind_of(celsius).step == pytest.approx(1 / 1.8, rel=1e-2)


def test_few_values_with_many_decimals_do_not_make_a_learned_density_look_good():
    """Three independent columns were announced as "+10.34 nats"."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.log1p(rng.integers(0, 5, 300)).round(5), rng.normal(size=(300, 2))])
    result = vicinal.compare(X, densities=["gaussian", "parzen-loo", "lca"], n_repeats=1)
    assert result.helped["density"] != "helped"
    assert result.result("density", "lca").difference.mean < 0.1


def test_values_that_repeat_on_no_lattice_are_told():
    zero_inflated = np.where(np.arange(N) % 3 == 0, 0.0, NORMAL)
    found = kind_of(zero_inflated)
    assert found.kind == "tied"
    assert not found.measured
    assert found.tied == pytest.approx(1 - (N * 2 // 3 + 1) / N)
    asked = column_types(pd.DataFrame({"rain": zero_inflated, "size": NORMAL}), {"rain": "continuous"})["rain"]
    assert asked.measured
    assert asked.tied == found.tied  # so that no verdict rests on it


def test_overrides():
    table = pd.DataFrame({"coin": RNG.integers(2, size=N), "day": ["03/04/2024", "05/06/2024"] * 30, "x": NORMAL})
    asked = {"coin": "lattice", "day": "date:%d/%m/%Y", "x": "lattice:0.5"}
    found = column_types(table, asked)
    assert found["coin"] == ColumnType("lattice", 1.0, 0.0)
    assert found["day"].format == "%d/%m/%Y"
    assert found["x"].step == 0.5
    assert {name: kind.spec for name, kind in found.items()} == {**asked, "coin": "lattice:1.0"}
    for types, message in [
        ({"y": "boolean"}, "there is no column 'y'"),
        ({"x": "number"}, "'x' cannot be 'number'; expected one of"),
        ({"day": "continuous"}, "'day' cannot be continuous, because it holds"),
        ({"x": "lattice"}, "have no common step"),
        ({"x": "lattice:no"}, "must be a number greater than 0, got 'no'"),
        ({"day": "date:%Y"}, "is not a date of the format '%Y', as in '03/04/2024'"),
    ]:
        with pytest.raises(TableError, match=message):
            column_types(table, types)


def messy():
    """A table with a column of every kind."""
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "order_id": rng.choice(10**6, size=N, replace=False),
            "weight": rng.normal(size=N),
            "items": rng.poisson(4.0, size=N),
            "gift": rng.integers(2, size=N),
            "shop": rng.choice(["north", "south"], size=N),
            "day": pd.Series(pd.date_range("2024-01-05", periods=N, freq="29h")).dt.strftime("%Y-%m-%d %H:%M"),
            "note": [f"text {i}" for i in range(N)],
            "currency": "EUR",
        }
    )


def test_dates_become_days_and_places_in_year_week_and_day():
    dates = pd.to_datetime(["1970-01-02 12:00", "1970-07-03 00:00", "1971-01-02 06:00"])
    encoder = TableEncoder().fit(pd.DataFrame({"when": dates}))
    found = dict(zip(encoder.get_feature_names_out(), encoder.transform(pd.DataFrame({"when": dates})).T, strict=True))
    np.testing.assert_allclose(found["when"], [1.5, 183.0, 366.25])
    assert set(found) == {"when"} | {f"when:{p}_{f}" for p in ("month", "weekday", "hour") for f in ("sin", "cos")}
    np.testing.assert_allclose(found["when:hour_sin"], [0, 0, 1], atol=1e-12)
    np.testing.assert_allclose(found["when:month_cos"], np.cos(2 * np.pi * np.array([1, 183, 1]) / 366))
    np.testing.assert_allclose(found["when:weekday_sin"], np.sin(2 * np.pi * np.array([4.5, 4.0, 5.25]) / 7))
    same_month = pd.DataFrame({"when": pd.date_range("2024-03-04", periods=20)})
    assert "when:month_sin" not in TableEncoder().fit(same_month).get_feature_names_out()


def test_dates_that_are_years_or_months_have_no_weekday():
    years = pd.to_datetime([f"{1970 + i % 12}-01-01" for i in range(60)])
    assert list(vicinal.TableEncoder().fit(pd.DataFrame({"year": years})).get_feature_names_out()) == ["year"]
    months = pd.DataFrame({"month": pd.date_range("2021-01-01", periods=30, freq="MS")})
    assert list(vicinal.TableEncoder().fit(months).get_feature_names_out()) == [
        "month",
        "month:month_sin",
        "month:month_cos",
    ]


def test_the_encoder_treats_new_rows_alike():
    table = messy()
    encoder = TableEncoder(categories="one_hot").fit(table)
    assert encoder.used_columns == ["weight", "items", "gift", "shop", "day"]
    everything = encoder.transform(table)
    shuffled = table[["day", "gift", "note", "shop", "items", "weight"]].iloc[::-1]
    np.testing.assert_array_equal(encoder.transform(shuffled), everything[::-1])
    np.testing.assert_array_equal(encoder.transform(table[3:4]), everything[3:4])
    table.loc[0, "shop"], table.loc[1, "shop"], table.loc[2, "items"] = "east", None, np.nan
    found = pd.DataFrame(encoder.transform(table), columns=encoder.get_feature_names_out())
    assert encoder.unseen(table) == {"shop": ["east"]}
    assert found.loc[0, ["shop=north", "shop=south"]].tolist() == [0, 0]
    assert found.loc[1, ["shop=north", "shop=south"]].isna().all()
    assert np.isnan(found.loc[2, "items"])
    with pytest.raises(TableError, match=r"lacks 1 column of the model: 'items'\. Did you mean 'Items'"):
        encoder.transform(table.rename(columns={"items": "Items"}))
    with pytest.raises(TableError, match=r"'weight' .* row 3 holds 'heavy'"):
        encoder.transform(table.assign(weight=table["weight"].astype(object).where(table.index != 3, "heavy")))
    with pytest.raises(TableError, match="must hold dates: 'day' holds 'soon' in row 5"):
        encoder.transform(table.assign(day=table["day"].where(table.index != 5, "soon")))


def test_times_of_a_new_table_need_not_be_text_as_those_of_the_training_rows():
    written = DAYS.dt.strftime("%d/%m/%Y")
    encoder = TableEncoder().fit(pd.DataFrame({"day": written}))
    expected = encoder.transform(pd.DataFrame({"day": written}))
    np.testing.assert_array_equal(encoder.transform(pd.DataFrame({"day": DAYS})), expected)
    encoder = TableEncoder().fit(pd.DataFrame({"day": DAYS}))
    np.testing.assert_array_equal(encoder.transform(pd.DataFrame({"day": DAYS.dt.strftime("%Y-%m-%d")})), expected)
    # 05/01/2020 would be read as a day of May, without a message if no day is later than the twelfth.
    with pytest.raises(TableError, match=r"'05/01/2020' in row 0 \(expected ISO 8601, such as 2024-03-05\)"):
        encoder.transform(pd.DataFrame({"day": written[:5]}))


def test_prepare_says_what_it_did():
    prepared = prepare(messy(), target="shop")
    assert list(prepared.X)[:4] == ["weight", "items", "gift", "day"]
    said = " ".join(note.text for note in prepared.notes)
    assert "identify or number the rows: identifier: 'order_id', 'note'" in said
    assert "are constant: 'currency'" in said
    narrow = prepared.learnable(levels=False)
    assert list(narrow.X) == ["weight", "items", "day"]
    assert "boolean: 'gift'" in narrow.notes[-1].text
    np.testing.assert_array_equal(narrow.encoder.transform(messy()), narrow.X)
    assert narrow.encoder.dequantizer().steps_.tolist() == [0.0, 1.0, 0.0]


def test_kinds_do_not_depend_on_rows_that_are_dropped():
    """The warning that a column counts the rows was lost with --drop-missing: the numbers had gaps then."""
    table = messy().assign(counted=np.arange(N))
    table.loc[[3, 9], "weight"] = np.nan
    for missing in ("drop", "impute", "marginalise"):
        prepared = prepare(table, missing=missing)
        assert prepared.types["counted"].kind == "counter"
        assert len(prepared.X) == (N - 2 if missing == "drop" else N)
    with pytest.raises(
        TableError, match=r"2 missing values in 2 rows of 60 \('weight': 2\)\. Pass missing='marginalise'"
    ):
        prepare(table)


# -- the command and compare


def run(*arguments):
    return main([str(argument) for argument in arguments])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_coin_column_is_a_level_and_not_part_of_the_metric(folder, capsys):
    """On wine plus a coin `learn --method lca` failed, and with the advised `reg` the coin had 62 % of the metric."""
    wine = load_wine(as_frame=True).data.assign(coin=np.random.default_rng(0).integers(2, size=178))
    wine.to_csv("wine.csv", index=False)
    assert run("learn", "wine.csv", "--method", "lca", "-o", "m.vicinal") == 0
    assert "categories: coin (l = " in capsys.readouterr().err
    assert model_io.load("m.vicinal")[-1].components_.shape == (13, 13)
    assert run("learn", "wine.csv", "--method", "lca", "--type", "coin=lattice", "-o", "m.vicinal", "-q") == 0
    assert model_io.load("m.vicinal")[-1].components_.shape == (14, 14)
    result = vicinal.compare(wine, metrics=[], densities=["gaussian", "lca"], n_repeats=1)
    assert "do not use these columns" not in result.verdict
    assert result.result("density", "lca").judged
    assert result.estimator("density", "lca")[-1].categorical_features == [13]


def test_no_verdict_rests_on_integers():
    """`compare` announced "Manifold Parzen helped: +13.12 nats" on two columns of integers."""
    X = np.random.default_rng(0).poisson(3.0, size=(200, 2))
    result = vicinal.compare(X, densities=["gaussian", "parzen-scott", "manifold-parzen"], n_repeats=1)
    assert result.helped["density"] != "helped"
    assert any("2 of the 2 columns that densities used are rounded" in note for note in result.notes)
    # no density of whole numbers can say more than log 1 = 0 nats of their probability
    assert all(found.main.mean < 0 for found in result.densities)


def test_what_repeats_on_no_lattice_is_not_judged():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    X[::3, 1] = 0.0
    result = vicinal.compare(X, types={"x1": "continuous"}, densities=["gaussian", "manifold-parzen"], n_repeats=1)
    assert result.settings["types"] == {"x1": "continuous"}
    assert result.helped["density"] is None
    assert result.best["density"] is None
    assert result.verdict.startswith("No learned density is judged: 32 % of the rows repeat a value of 'x1'")
    assert "not judged: 32 %" in str(result)
    assert json.loads(json.dumps(result.to_dict()))["densities"][1]["not_judged"]
    # The table has no room for the reason, which stands below it.
    assert str(result).count("a density can be made arbitrarily high.") >= 2


def test_fits_that_did_not_converge_are_not_judged():
    X, y = load_iris(return_X_y=True)
    metrics = {"hasty": vicinal.NCA(max_iter=1, random_state=0), "rca": vicinal.RCA()}
    result = vicinal.compare(X, y, metrics=metrics, densities=[], n_repeats=1)
    assert result.result("metric", "hasty").not_judged == "stopped before convergence in 5 of 5 fits"
    assert result.best["metric"] == "rca"
    assert result.result("metric", "rca").judged


def test_compare_without_amounts_says_so():
    coins = np.random.default_rng(0).integers(2, size=(40, 2))
    counted = np.column_stack([np.arange(40), np.arange(40) + 100])
    with pytest.raises(ValueError, match=r"no column holds quantities or levels \(counter: 'x0', 'x1'\)"):
        vicinal.compare(counted)
    levels = vicinal.compare(coins, densities=["independent", "lca"], n_repeats=1)
    assert [round(found.main.mean, 1) for found in levels.densities] == [-1.4, -1.4]  # two fair coins: 2 log 2
    result = vicinal.compare(coins, coins[:, 0], n_repeats=1)
    assert [found.name for found in result.metrics if found.name in ("lca", "rca")] == ["rca"]


def test_learn_and_compare_use_the_same_columns(folder, capsys):
    messy().to_csv("messy.csv", index=False)
    assert run("learn", "messy.csv", "--method", "rca", "--target", "shop", "-o", "m.vicinal", "--json", "-q") == 0
    learned = json.loads(capsys.readouterr().out)
    line = ["compare", "messy.csv", "--target", "shop", "--methods", "z-scored,rca", "--repeats", 1, "--json", "-q"]
    assert run(*line) == 0
    compared = json.loads(capsys.readouterr().out)
    assert list(compared["types"]) == learned["columns"]
    assert run("inspect", "m.vicinal", "--json") == 0
    assert json.loads(capsys.readouterr().out)["types"]["items"] == "lattice of step 1"


def test_scores_of_rounded_rows_by_the_command(folder, capsys):
    """The command's scores are those of `score_rows`, a training row is scored without itself, in any order."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.poisson(4, size=150), "b": rng.normal(size=150).round(1)})
    table.to_csv("t.csv", index=False)
    assert run("learn", "t.csv", "--method", "parzen", "-o", "m.vicinal", "-q") == 0
    model = model_io.load("m.vicinal")
    new = pd.DataFrame({"a": [3, 40], "b": [2.9, 9.9]})
    new.to_csv("new.csv", index=False)
    assert run("score", "m.vicinal", "new.csv", "-q") == 0
    scores = pd.read_csv(io.StringIO(capsys.readouterr().out))
    np.testing.assert_allclose(scores["log_density"], vicinal.tables.score_rows(model, new), rtol=1e-12)
    probability = vicinal.tables.score_rows(model, new, probability=True)
    np.testing.assert_allclose(scores["log_probability"], probability, rtol=1e-12)
    assert scores["outlier"].tolist()[1] == 1
    assert run("score", "m.vicinal", "t.csv") == 0
    captured = capsys.readouterr()
    assert "150 rows of 150 equal a training row exactly" in captured.err
    whole = pd.read_csv(io.StringIO(captured.out))
    table.iloc[::-1].to_csv("back.csv", index=False)
    assert run("score", "m.vicinal", "back.csv", "-q") == 0
    back = pd.read_csv(io.StringIO(capsys.readouterr().out))
    np.testing.assert_array_equal(back["log_density"].to_numpy()[::-1], whole["log_density"])
    first = ~table.duplicated().to_numpy()
    own = model[-1].score_samples(None) - np.log(model["scale"].scale_).sum()
    np.testing.assert_allclose(whole["log_density"][first], own[first], rtol=1e-9)


def test_bad_types_on_the_command_line(folder, capsys):
    messy().to_csv("messy.csv", index=False)
    learn = ["learn", "messy.csv", "--method", "parzen", "-o", "m.vicinal"]
    assert run(*learn, "--type", "itmes=lattice") == 2
    assert "--type: there is no column 'itmes'. Did you mean 'items'?" in capsys.readouterr().err
    assert run(*learn, "--type", "weight=heavy") == 3
    assert "--type: 'weight' cannot be 'heavy'" in capsys.readouterr().err


# -- spellings that tables have ----------------------------------------------------------------------------------------

DISTINCT = np.random.default_rng(1).choice(10**6, size=N, replace=False)
DAYS = pd.Series(pd.date_range("2020-01-05", periods=N, freq="D"))


@pytest.mark.parametrize(
    "name",
    [
        "CustomerID",
        "userId",
        "PassengerId",
        "customerid",
        "ORDERID",
        "account_number",
        "order no",
        "Invoice Nr",
        "Unnamed: 0",
        "",
    ],
)
def test_identifiers_in_their_usual_spellings(name):
    assert kind_of(DISTINCT, name).kind == "identifier"


@pytest.mark.parametrize("name", ["acid", "hybrid", "thyroid", "number_of_rooms", "piano", "casino", "valid"])
def test_words_that_only_end_like_identifiers_are_amounts(name):
    assert kind_of(DISTINCT, name).kind == "continuous"


@pytest.mark.parametrize(
    "written",
    [
        *(
            "%d-%m-%Y",
            "%Y/%m/%d",
            "%d %b %Y",
            "%d %B %Y",
            "%d-%b-%Y",
            "%B %d, %Y",
            "%m/%d/%y",
            "%d.%m.%Y",
            "%d-%m-%Y %H:%M",
        ),
        *("%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S.000+00:00", "%Y-%m-%d %I:%M %p"),
        "%m/%d/%Y %I:%M:%S %p",
    ],
)
def test_dates_in_ordinary_formats(written):
    table = pd.DataFrame({"day": DAYS.dt.strftime(written), "x": NORMAL})
    assert column_types(table)["day"].kind == "date"
    days = np.asarray(prepare(table).X["day"])
    np.testing.assert_array_equal(np.diff(days), 1.0)


def test_months_are_dates():
    table = pd.DataFrame({"month": [f"20{i // 12 + 10}-{i % 12 + 1:02d}" for i in range(60)], "x": NORMAL})
    assert column_types(table)["month"].kind == "date"
    assert prepare(table).X["month"].diff().dropna().between(28, 31).all()
    assert column_types(pd.DataFrame({"season": ["2010-11", "2010-25"] * 30}))["season"].kind == "category"


def test_days_that_are_written_as_whole_numbers_are_hinted_at():
    days = DAYS.dt.strftime("%Y%m%d").astype(float)
    days[3] = np.nan
    table = pd.DataFrame({"day": days, "x": NORMAL})
    [note] = prepare(table, missing="impute").notes[:1]
    assert note.text.startswith("The numbers of 'day' look like dates (20")
    assert note.text.endswith("Pass types={'day': 'date:%Y%m%d'} to read them as dates.")
    read = prepare(table, types={"day": "date:%Y%m%d"}, missing="drop")
    assert read.types["day"].kind == "date"
    assert read.X["day"].diff().dropna().max() == 2.0
    assert not any(
        "look like dates" in note.text for note in [*read.notes, *prepare(pd.DataFrame({"x": 1e4 * NORMAL})).notes]
    )


def test_periods_durations_and_objects_are_read():
    table = pd.DataFrame(
        {
            "month": DAYS.dt.to_period("D"),
            "took": pd.to_timedelta(np.arange(N) ** 2, unit="h"),
            "objects": pd.Series(NORMAL).astype(object),
            "decimals": [decimal.Decimal(str(value)) for value in NORMAL.round(6)],
            "ok": pd.Series([True, None, False] * 20, dtype=object),
            "said": ["TRUE", "False", None] * 20,
        }
    )
    kinds = {name: kind.kind for name, kind in column_types(table).items()}
    assert kinds == {
        "month": "date", "took": "continuous", "objects": "continuous", "decimals": "continuous", "ok": "boolean", "said": "boolean",
    }  # fmt: skip
    X = prepare(table, missing="impute").X
    np.testing.assert_allclose(X["took"], np.arange(N) ** 2 / 24)
    np.testing.assert_array_equal(X["objects"], NORMAL)
    np.testing.assert_array_equal(X["ok"], np.array([1.0, np.nan, 0.0] * 20))
    np.testing.assert_array_equal(X["said"], np.array([1.0, 0.0, np.nan] * 20))


@pytest.mark.parametrize(
    ("texts", "hint"),
    [
        ([f"${value:,.2f}" for value in DISTINCT / 7], "remove the signs"),
        ([f"{value:,}" for value in DISTINCT], "remove the signs"),
        ([f"{10 + i // 60}:{i % 60:02d}:00" for i in range(N)], "date:FORMAT"),
        ([f"{i + 1}-Q1-2020" for i in range(N)], "date:FORMAT"),
    ],
)
def test_amounts_and_times_written_as_texts_are_hinted_at(texts, hint):
    notes = " ".join(note.text for note in prepare(pd.DataFrame({"x": NORMAL, "odd": texts})).notes)
    assert hint in notes
    assert "'odd'" in notes


def test_numbers_with_decimal_commas_are_no_categories():
    """The message recommended 0/1 columns for them, and with 0/1 columns these were created without a note."""
    table = pd.DataFrame({"x": NORMAL, "price": [f"{i % 7},5" for i in range(N)]})
    [note] = prepare(table).notes
    assert "decimal=','" in note.text
    assert "one_hot" not in note.text
    [note] = prepare(table, categories="one_hot").notes
    assert note.text.startswith(
        "Converted to 0/1 columns: 'price (7 values)'. Numbers such as '0,5' in 'price' can be read with"
    )
    assert note.odd
    both = prepare(table.assign(shop=list("ab") * 30)).notes[0].text
    assert "Pass categories='one_hot' to use categories" in both
    assert "decimal=','" in both


def test_a_category_of_thousands_of_values_is_refused_before_the_memory_is_full(monkeypatch):
    monkeypatch.setattr("vicinal._tables.encoding._MOST_VALUES", 40)
    table = pd.DataFrame({"x": NORMAL, "zip": 1000 + np.arange(N) // 1})
    with pytest.raises(TableError, match="'zip' has 60 values, and at most 40 can be converted to 0/1 columns"):
        prepare(table, types={"zip": "category"}, categories="one_hot")
    assert list(prepare(table, types={"zip": "text"}, categories="one_hot").X) == ["x"]


def test_a_lattice_that_is_asked_for_without_a_step_is_completed_by_the_values():
    """A ColumnType was used unchanged, and a step of None caused an error in the noise later."""
    table = pd.DataFrame({"x": NORMAL, "gift": RNG.integers(2, size=N) * 5})
    assert column_types(table, {"gift": ColumnType("lattice")})["gift"].step == 5.0
    assert column_types(table, {"gift": ColumnType("lattice", np.float64(2.5), 0.0)})["gift"].step == 2.5
    assert vicinal._tables.array_types(table.to_numpy(), ["x", "gift"], {"gift": ColumnType("lattice")})[1].step == 5.0
    with pytest.raises(TableError, match="cannot be 'grid'"):
        column_types(table, {"gift": ColumnType("grid")})


def test_two_features_of_one_name_are_refused():
    table = pd.DataFrame({"c": list("abc") * 20, "c=a": NORMAL})
    with pytest.raises(TableError, match="two columns would have the name 'c=a'"):
        prepare(table, categories="one_hot")


def test_truth_values_with_a_gap_are_learned_from_by_the_command(tmp_path, capsys):
    table = pd.DataFrame({"x": NORMAL, "y": NORMAL[::-1] ** 3, "ok": pd.Series([True, None, False] * 20, dtype=object)})
    table.to_csv(tmp_path / "t.csv", index=False)
    assert (
        main(["learn", str(tmp_path / "t.csv"), "--method", "parzen", "--missing", "drop", "-o", str(tmp_path / "m")])
        == 0
    )
    assert "categories: ok (l = " in capsys.readouterr().err


def test_a_broken_constant_is_an_outlier_for_the_command_too(tmp_path, capsys):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"]).assign(const=7, currency="EUR")
    new = table.head(4).assign(a=table["a"].head(4) + 0.01)
    new.loc[1, "const"], new.loc[2, "currency"], new.loc[3, "const"] = 8, "USD", None
    for name, rows in (("t", table), ("n", new)):
        rows.to_csv(tmp_path / f"{name}.csv", index=False)
    model = str(tmp_path / "m")
    assert main(["learn", str(tmp_path / "t.csv"), "--method", "parzen", "-o", model]) == 0
    capsys.readouterr()
    assert main(["score", model, str(tmp_path / "n.csv"), "--explain"]) == 0
    printed = capsys.readouterr()
    found = pd.read_csv(io.StringIO(printed.out))
    np.testing.assert_allclose(found["p_value"][[1, 2]], 1 / 61)
    assert found["outlier"][[1, 2]].tolist() == [1, 1]
    assert found["p_value"][[0, 3]].min() > 1 / 61
    assert found["why"][1].startswith("const: expected 7 as in all training rows, got 8")
    assert "2 rows of 4 differ from the constant value of all training rows in 'const', 'currency'" in printed.err


def test_a_column_that_follows_from_others_is_found_whatever_its_unit():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(200, 4)) * [1.0, 1e6, 1e-4, 1.0] + [0.0, 1e7, 0.0, 3.0]
    whole = np.column_stack([X[:, 0], X[:, 1], 5.0 - 2.0 * X[:, 1], X[:, 2], X[:, 3], X[:, :4].sum(axis=1)])
    assert dependent_columns(whole) == [2, 5]
    almost = whole.copy()
    almost[7, 2] *= 1.01  # one row breaks it: that row is an outlier, and the column says something
    assert dependent_columns(almost) == [5]
    gaps = np.where(rng.random(whole.shape) < 0.1, np.nan, whole)
    assert dependent_columns(gaps) == [2, 5]
    assert dependent_columns(rng.normal(size=(5, 8))) == []  # no more rows than columns: all are, and none is to blame
    many = np.repeat(whole, 40, axis=0)
    many[4_001, 2] += 1e5  # a row that the sample of 2,000 rows does not hold
    assert dependent_columns(many) == [5]


def test_a_column_of_tied_values_is_kept_out_of_densities_and_the_others_are_judged():
    """One such column used to leave all densities without a verdict."""
    rng = np.random.default_rng(0)
    turned = rng.normal(size=(160, 2)) @ [[1.0, 0.95], [0.0, 0.1]]
    table = pd.DataFrame(turned, columns=["a", "b"])
    table["rain"] = np.where(rng.random(160) < 0.4, 0.0, rng.normal(size=160))
    some = {"densities": ["parzen-loo", "lca"], "n_repeats": 1, "n_splits": 3}
    found = vicinal.compare(table, **some)
    assert [result.not_judged for result in found.densities] == [None, None]
    assert "tied (values that repeat, but fill no even steps): 'rain'" in found.verdict
    alone = vicinal.compare(table[["a", "b"]], **some)
    for with_rain, without in zip(found.densities, alone.densities, strict=True):
        np.testing.assert_allclose(with_rain.scores["log_likelihood"], without.scores["log_likelihood"], rtol=1e-10)


@pytest.mark.parametrize("values", [[0.3, 0.30000000000000004], [0.3, 0.3, 0.30000000000000004, 0.3]])
def test_values_that_differ_by_a_rounding_error_are_on_no_lattice(values):
    table = pd.DataFrame({"a": values, "b": np.arange(len(values)) * 1.5})
    assert TableEncoder().fit(table).types_["a"].kind in ("continuous", "tied")


def test_whole_numbers_beyond_float64_are_infinite():
    table = pd.DataFrame({"a": [10**400, -(10**400), 3, 5], "b": [1.5, 2.0, 7.25, 1.0]})
    with pytest.raises(TableError, match="infinite values in 'a"):
        prepare(table)


@pytest.mark.parametrize("written", ["%Y%Y", "%Q", "%"])
def test_format_of_dates_that_is_not_valid_is_named(written):
    with pytest.raises(TableError, match=f"types: '{written}' is not a format of dates for 'day'"):
        column_types(pd.DataFrame({"day": ["2024-01-05", "2024-02-01"]}), {"day": f"date:{written}"})


def test_bytes_lists_and_records_are_read_as_text():
    table = pd.DataFrame(
        {
            "bytes": [b"\xff", b"\xfe"] * 6,
            "list": [np.arange(i % 3) for i in range(12)],
            "record": [{"u": i % 2} for i in range(12)],
            "b": np.linspace(0.0, 1.0, 12) ** 2,
        }
    )
    kinds = {name: kind.kind for name, kind in column_types(table).items()}
    assert kinds == {"bytes": "category", "list": "category", "record": "category", "b": "continuous"}


def prices(n=200):
    rng = np.random.default_rng(0)
    return pd.DataFrame({"price": rng.lognormal(2.0, 1.2, n).round(2), "size": rng.normal(size=n)})


def test_a_skewed_column_is_noted_and_its_logarithm_offered():
    table = prices()
    [note] = prepare(table).notes
    assert note.odd
    assert (
        "skewed, so that most rows are close together and a few are far away: 'price'. Pass log=['price'] to use its"
        in note.text
    )
    prepared = prepare(table, log=["price"])
    assert [note.text for note in prepared.notes] == ["Replaced by their logarithms: 'price'."]
    np.testing.assert_allclose(prepared.X["log(price)"], np.log(table["price"]))
    assert str(prepared.feature_types["log(price)"]) == "logarithm (lattice of step 0.01)"
    assert prepared.types["price"].kind == "lattice"
    assert prepare(table.assign(price=-table["price"])).notes == []  # has no logarithm


def test_noise_of_a_logarithm_is_that_of_the_rounded_value():
    """The noise of one cent must be taken back by rounding the price, small or large."""
    table = prices()
    encoder = TableEncoder(log=["price"]).fit(table)
    features = pd.DataFrame(encoder.transform(table), columns=encoder.get_feature_names_out())
    noisy = encoder.dequantizer().draw(features, 1)
    away = np.exp(noisy[:, 0]) - table["price"]
    assert 0.004 < np.abs(away).max() <= 0.005 + 1e-9
    np.testing.assert_array_equal(noisy[:, 1], table["size"])


def test_scores_of_logarithms_have_no_probability():
    noise = vicinal.Dequantizer([0.01, 0.0], log=[0])
    model = make_pipeline(TableEncoder(log=["price"]), noise, vicinal.ParzenWindows()).fit(prices())
    assert np.isfinite(vicinal.tables.score_rows(model, prices())).all()
    with pytest.raises(ValueError, match="probability=True is not available for a model of logarithms"):
        vicinal.tables.score_rows(model, prices(), probability=True)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"price": [3.0, 0.0, 1.5, 2.0]}, r"log: 'price' holds 0 in row 1, which has no logarithm \(1 such row\)"),
        ({"price": ["a", "b", "a", "c"]}, "log: 'price' is not a quantity, but a column of the kind category"),
        ({"prize": [3.0, 0.0, 1.5, 2.0]}, "log: there is no column 'price'. Did you mean 'prize'"),
    ],
)
def test_logarithms_that_do_not_exist_are_refused(table, message):
    with pytest.raises(TableError, match=message):
        TableEncoder(log=["price"]).fit(pd.DataFrame(table)).transform(pd.DataFrame(table))


def test_logarithms_on_the_command_line(folder, capsys):
    table = prices()
    table.to_csv("t.csv", index=False)
    assert run("learn", "t.csv", "--method", "parzen", "-o", "m.vicinal") == 0
    assert "Pass --log price to use its logarithm" in capsys.readouterr().err
    assert run("learn", "t.csv", "--method", "parzen", "--log", "price", "-o", "m.vicinal") == 0
    assert "replaced by their logarithms: 'price'" in capsys.readouterr().err
    model = model_io.load("m.vicinal")
    table[:3].to_csv("new.csv", index=False)
    assert run("score", "m.vicinal", "new.csv", "--as-new", "-q") == 0
    scores = pd.read_csv(io.StringIO(capsys.readouterr().out))
    np.testing.assert_allclose(scores["log_density"], vicinal.tables.score_rows(model, table[:3]), rtol=1e-12)
    line = [
        "compare",
        "t.csv",
        "--log",
        "price",
        "--methods",
        "gaussian,lca",
        "--repeats",
        1,
        "--report",
        "r.html",
        "-q",
    ]
    assert run(*line) == 0
    report = Path("r.html").read_text(encoding="utf-8")
    assert "log(price)" in report
    assert "Replaced by their logarithms" in report
    assert run("learn", "t.csv", "--method", "parzen", "--log", "prise", "-o", "m.vicinal") == 3
    assert "--log: there is no column 'prise'. Did you mean 'price'" in capsys.readouterr().err


def test_reasons_for_logarithms_are_in_the_units_of_the_table(folder, capsys):
    rng = np.random.default_rng(0)
    size = rng.normal(size=200)
    table = pd.DataFrame({"price": np.exp(3.0 + 1.5 * size + 0.1 * rng.normal(size=200)).round(2), "size": size})
    table.loc[17, ["price", "size"]] = [8_955.1, 0.0]
    table.to_csv("t.csv", index=False)
    assert run("outliers", "t.csv", "--log", "price", "--method", "lca", "-q") == 0
    found = pd.read_csv(io.StringIO(capsys.readouterr().out)).set_index("row")
    reason = re.fullmatch(r"price: expected ([\d.,]+) to ([\d.,]+), got 8,?955.10", found.loc[17, "why"])
    assert 2.0 < float(reason[1]) < 20.0 < float(reason[2]) < 200.0


def test_prepare_the_same_mark_in_many_columns_is_named_once():
    table = pd.DataFrame({name: ["1.5", "2.5", "?", "4.5"] for name in "abc"})
    with pytest.raises(TableError) as caught:
        prepare(table)
    assert str(caught.value).count("Pass na=['?']") == 1


def test_prepare_column_that_is_constant_over_the_kept_rows_left_out_with_its_value():
    table = pd.DataFrame({"a": [1.5, 2.25, np.nan, 4.0, 5.5], "b": [3.0, 3.0, 9.0, 3.0, 3.0]})
    prepared = prepare(table, missing="drop")
    assert list(prepared.X) == ["a"]
    assert prepared.encoder.constants_ == {"b": "3.0"}


def test_repeated_extreme_values_are_pointed_out_as_possible_marks_of_missing_values():
    age = np.random.default_rng(0).integers(18, 91, 500).astype(float)
    for mark in (999, 99, -1, -9, -99):
        values = age.copy()
        values[:9] = mark
        notes = [note.text for note in prepare(pd.DataFrame({"age": values})).notes]
        side = "above" if mark > 0 else "below"
        text = f"'age' is {mark} in 9 rows, far {side} its other values (18 to 90). Pass na=['{mark}'] if this means a missing value."
        assert notes == [text]
    rng = np.random.default_rng(1)
    for usual in (age, rng.poisson(2.0, 500), np.clip(np.round(rng.normal(size=500), 2), -1, 1), np.append(age, 999.0)):
        notes = [note.text for note in prepare(pd.DataFrame({"age": usual})).notes]
        assert not any("missing" in note for note in notes)
