"""Columns of levels inside the density: every sum against a double loop over rows and levels."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp
from sklearn.base import clone

from vicinal import (
    LCA,
    DensityClassifier,
    DensityOutlierDetector,
    LCAGauss,
    LocalLCA,
    ManifoldParzen,
    ParzenMeanShift,
    ParzenWindows,
    Shrinkage,
    io,
)
from vicinal._categories import COMPARED, NEW, TRAINING, learn_categories
from vicinal._leave_one_out import MixedRows
from vicinal._leave_one_out.mixed import Masses
from vicinal._mixtures import SharedMixture, column_conditionals


def literal_shares(levels, weight, of):
    """The shares of levels and of what is copied with them, from the definition, by level."""
    values = {level for level in levels if level == level}
    total = sum(w for level, w in zip(levels, weight, strict=True) if level == level)
    found = {}
    for value in values:
        mine = [w for level, w in zip(levels, weight, strict=True) if level == value]
        count, without = sum(mine), sum(mine) * (len(mine) - 1) / len(mine)
        found[value] = {
            TRAINING: max(without, 1.0) / total,
            NEW: count / (total + 1.0),
            COMPARED: max(without, 1.0) / (total + 1.0),
        }[of]
    return found, 1.0 / (total if of == TRAINING else total + 1.0)


def literal_factor(own, other, shares, unseen, l):
    """The factor of a query's level and a point's."""
    if own != own:
        return 1.0
    share = shares.get(own, unseen)
    if other != other:
        return share
    return (1.0 - l) * (own == other) + l * share


def oracle(numbers, filled, codes, covariance, smoothing, weight):
    n = len(codes)
    scores, p = np.zeros(n), np.zeros((n, n))
    for i in range(n):
        own = filled.copy()
        own[i] = numbers[i]
        found = literal_scores_of_row(i, own, codes, covariance, smoothing, weight)
        scores[i], p[i] = found
    return scores, p, [literal_shares(codes[:, k].tolist(), weight, TRAINING) for k in range(codes.shape[1])]


def literal_scores_of_row(i, numbers, codes, covariance, smoothing, weight):
    n, q = codes.shape
    tables = [literal_shares(codes[:, k].tolist(), weight, TRAINING) for k in range(q)]
    o = np.flatnonzero(~np.isnan(numbers[i]))
    S = covariance[np.ix_(o, o)]
    logs = np.full(n, -np.inf)
    for j in range(n):
        if j == i or weight[j] == 0:
            continue
        gap = numbers[i, o] - numbers[j, o]
        logs[j] = np.log(weight[j]) - 0.5 * (len(o) * np.log(2 * np.pi) + np.linalg.slogdet(S)[1])
        logs[j] -= 0.5 * gap @ np.linalg.solve(S, gap) if len(o) else 0.0
        for k in range(q):
            logs[j] += np.log(literal_factor(codes[i, k], codes[j, k], *tables[k], smoothing[k]))
    return logsumexp(logs) - np.log(weight.sum() - weight[i]), np.exp(logs - logsumexp(logs))


def mixed_rows(n=60, d=2, levels=(3, 5), seed=0):
    rng = np.random.default_rng(seed)
    codes = np.column_stack([rng.integers(k, size=n) for k in levels]).astype(float)
    numbers = rng.normal(size=(n, d)) + codes[:, :1]
    return numbers, codes


def problem_of(numbers, codes, smoothing, weight=None):
    table = np.hstack([numbers, codes])
    categories = learn_categories(table, np.arange(numbers.shape[1], table.shape[1]), weight, None)
    coded = categories.encode(table)
    problem = MixedRows.of(numbers, weight, None, (categories, coded), np.inf)
    return problem._replace(smoothing=np.asarray(smoothing, dtype=float))


@pytest.mark.parametrize("d", [0, 2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("gaps", ["none", "levels", "both"])
def test_a_pass_equals_a_double_loop(d, weighted, gaps):
    numbers, codes = mixed_rows(d=d)
    rng = np.random.default_rng(1)
    weight = rng.uniform(0.5, 2.0, size=len(codes)) if weighted else np.ones(len(codes))
    weight *= len(weight) / weight.sum()
    if gaps != "none":
        codes[rng.random(codes.shape) < 0.2] = np.nan
    smoothing, metric = [0.3, 0.8], np.array([[1.1, 0.0], [0.4, 0.7]])[:d, :d]
    problem = problem_of(numbers, codes, smoothing, weight if weighted else None)
    if gaps == "both" and d:
        numbers[rng.random(numbers.shape) < 0.2] = np.nan
        problem = problem._replace(known=numbers)  # the centres stay complete
    filled = problem.rows
    covariance = np.linalg.inv(metric.T @ metric)
    scores, p, tables = oracle(numbers, filled, codes, covariance, smoothing, weight)
    found = problem.em_statistics(metric)
    objective = (weight @ scores + np.log(smoothing).sum()) / weight.sum()
    np.testing.assert_allclose(found.log_likelihood, objective, rtol=1e-10)
    if gaps != "both":
        scatter = sum(
            weight[i] * p[i, j] * np.outer(metric @ (filled[i] - filled[j]), metric @ (filled[i] - filled[j]))
            for i in range(len(p)) for j in range(len(p))
        ) / weight.sum()  # fmt: skip
        np.testing.assert_allclose(found.scatter, np.broadcast_to(scatter, (d, d)), atol=1e-10)
    for k, l in enumerate(smoothing):
        shares, _ = tables[k]
        drawn, pairs = 1.0, 1.0
        for i in range(len(p)):
            for j in range(len(p)):
                if np.isnan(codes[i, k]) or np.isnan(codes[j, k]):
                    continue
                same = codes[i, k] == codes[j, k]
                copied = same * (1 - l) / ((1 - l) + l * shares[codes[i, k]])
                drawn += weight[i] * p[i, j] * (1 - copied)
                pairs += weight[i] * p[i, j]
        np.testing.assert_allclose(found.problem.smoothing[k], drawn / pairs, rtol=1e-10)
        moved = np.array([0.0, 0.0])
        moved[k] = 1e-5
        up, down = (problem.moved(sign * moved).em_statistics(metric).log_likelihood for sign in (1.0, -1.0))
        np.testing.assert_allclose(found.problem.slopes[k], (up - down) / 2e-5, rtol=1e-4, atol=1e-8)


# -- fitted densities ---------------------------------------------------------------------------------------------------


def table(n=150, seed=0):
    """A frame of numbers and levels that depend on each other, and an independent column."""
    rng = np.random.default_rng(seed)
    z = rng.integers(3, size=n)
    return pd.DataFrame(
        {
            "price": rng.normal(size=n) + 2.0 * z,
            "shop": pd.Categorical.from_codes(np.where(rng.random(n) < 0.1, 0, z), ["web", "store", "mail", "never"]),
            "size": rng.normal(size=n),
            "colour": np.array(list("rgb"), dtype=object)[np.where(rng.random(n) < 0.2, rng.integers(3, size=n), z)],
            "gift": rng.random(n) < 0.3,
        }
    )


def literal_density(model, frame, rows):
    """The density of new rows from the definition; NaN in a number and None in a level are missing."""
    S, l = model.covariance_, model.category_smoothing_
    weight = np.exp(model.mixture_.log_weights) * len(frame)
    numbers = [name for name in frame if frame[name].dtype == float]
    levels = [name for name in frame if name not in numbers]
    filled = model.mixture_.centres[:, [list(frame).index(name) for name in numbers]] if numbers else None
    answer = []
    for _, row in rows.iterrows():
        logs = np.log(weight / weight.sum())
        known = np.array([k for k, name in enumerate(numbers) if row[name] == row[name]], dtype=int)
        for j in range(len(frame)):
            if len(known):
                gap = row[[numbers[k] for k in known]].to_numpy(float) - filled[j, known]
                part = S[np.ix_(known, known)]
                logs[j] -= 0.5 * (gap @ np.linalg.solve(part, gap) + np.linalg.slogdet(2 * np.pi * part)[1])
            for k, name in enumerate(levels):
                column = frame[name]
                total = weight[column.notna().to_numpy()].sum()
                if pd.isna(row[name]):
                    continue
                share = max(
                    weight[(column == row[name]).to_numpy()].sum(), 1.0 if row[name] not in set(column) else 0.0
                )
                share /= total + 1.0
                if pd.isna(column.iloc[j]):
                    logs[j] += np.log(share)
                else:
                    logs[j] += np.log((1 - l[k]) * (column.iloc[j] == row[name]) + l[k] * share)
        answer.append(logsumexp(logs))
    return np.array(answer)


def new_rows():
    return pd.DataFrame(
        {
            "price": [0.0, 1.0, np.nan, 3.0],
            "shop": ["web", "never", "mail", None],
            "size": [0.5, -0.5, 0.0, np.nan],
            "colour": ["g", "r", None, "unheard"],
            "gift": [True, False, False, None],
        }
    )


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("model", [ParzenWindows("loo"), ParzenWindows(0.8), LCA(reg=0.1), LCA(reg=0.1, solver="em")])
@pytest.mark.parametrize("weighted", [False, True])
def test_new_rows_equal_a_double_loop(model, weighted, gaps):
    frame, rng = table(), np.random.default_rng(3)
    if gaps:
        frame["gift"] = frame["gift"].astype(object)
        for name in frame:
            frame.loc[rng.random(len(frame)) < 0.1, name] = None
    weight = rng.uniform(0.5, 2.0, len(frame)) if weighted else None
    model = clone(model).fit(frame, sample_weight=weight)
    np.testing.assert_allclose(model.score_samples(new_rows()), literal_density(model, frame, new_rows()), rtol=1e-10)
    if not gaps and not weighted:
        expected = model.objectives_[-1] - np.log(model.category_smoothing_).sum() / len(frame)
        if isinstance(model, ParzenWindows):
            np.testing.assert_allclose(model.score(), expected, rtol=1e-10)


@pytest.mark.parametrize("most", [None, 3])
def test_densities_sum_to_one_over_levels(most):
    frame = table()
    frame["colour"] = np.array(list("aaaaabbbbccddef"), dtype=object)[np.random.default_rng(1).integers(15, size=150)]
    model = ParzenWindows(max_categories=most).fit(frame)
    for row in (0, 7):
        every = pd.concat([frame.iloc[[row]]] * 7, ignore_index=True)
        every["colour"] = [*"abcdef", "unseen"]
        rest = [name for name in frame if name != "colour"]
        whole = logsumexp(model.score_samples(every))
        np.testing.assert_allclose(whole, model.marginal(rest).score_samples(frame[rest].iloc[[row]])[0], rtol=1e-10)
        conditional = model.conditional(frame.iloc[row].drop("colour").to_dict())
        each = conditional.score_samples(every[["colour"]])
        np.testing.assert_allclose(logsumexp(each), 0.0, atol=1e-10)
        codes = model._codes(every)
        place = next(k for k, c in enumerate(model.mixture_.categories.columns) if c.name == "colour")
        found = model.mixture_.level_probabilities(codes[:1], place)[0]
        np.testing.assert_allclose(found, np.exp(each), rtol=1e-9)


def test_marginals_and_conditionals_of_numbers_given_levels():
    frame = table()
    model = LCA(reg=0.1).fit(frame)
    given = {"shop": "mail", "gift": True, "size": 0.3}
    part, rows = model.conditional(given), frame[["price", "colour"]].iloc[:5]
    whole = rows.assign(**given)[list(frame)]
    whole["shop"] = whole["shop"].astype(frame["shop"].dtype)
    known = model.marginal(list(given)).score_samples(whole[list(given)])
    np.testing.assert_allclose(part.score_samples(rows), model.score_samples(whole) - known, rtol=1e-9)
    numbers = model.marginal(["size", "price"])
    assert isinstance(numbers, SharedMixture)
    assert np.isfinite(numbers.score_samples(frame[["size", "price"]].iloc[:3])).all()


def test_samples_are_tables_with_the_frequencies_of_the_density():
    frame = table(400)
    model = LCA(reg=0.1).fit(frame)
    drawn = model.sample(4000, random_state=0)
    assert list(drawn) == list(frame)
    assert drawn["shop"].dtype == frame["shop"].dtype
    assert drawn["gift"].dtype == bool
    for name in ("shop", "colour", "gift"):
        shares, expected = (x[name].astype(str).value_counts(normalize=True) for x in (drawn, frame))
        np.testing.assert_allclose(shares.reindex(expected.index), expected, atol=0.03)
    both = pd.crosstab(drawn["shop"].astype(str), drawn["colour"], normalize="index")
    assert both.loc["mail", "b"] > 0.7  # the columns depend on each other


@pytest.mark.parametrize("solver", ["accelerated", "em"])
def test_smoothing_of_independent_and_of_determined_columns(solver):
    rng = np.random.default_rng(0)
    n = 400
    z = rng.integers(4, size=n)
    frame = pd.DataFrame(
        {"x": rng.normal(size=n) + 9.0 * z, "same": pd.Categorical(z), "free": pd.Categorical(rng.integers(5, size=n))}
    )
    model = LCA(reg=0.01, solver=solver, max_iter=30)
    with warnings.catch_warnings(action="ignore"):
        model.fit(frame)
    assert model.category_smoothing_[0] < 1.5 / n
    assert model.category_smoothing_[1] > 0.99


@pytest.mark.parametrize("reg", [0.0, 0.3, Shrinkage(0.5, 2.0)])
@pytest.mark.parametrize("kind", ["full", "diag", "spherical"])
def test_the_objective_never_falls(reg, kind):
    frame = table()
    weight = np.random.default_rng(0).uniform(0.2, 3.0, len(frame))
    em = LCA(kind, reg=reg, solver="em", max_iter=40)
    with warnings.catch_warnings(action="ignore"):
        em.fit(frame, sample_weight=weight)
    assert np.diff(em.objectives_).min() > -1e-10
    fast = LCA(kind, reg=reg).fit(frame, sample_weight=weight)
    assert fast.objectives_[-1] > em.objectives_[-1] - 1e-6


def test_smoothing_is_recovered_from_a_mixture_with_fixed_centres():
    rng = np.random.default_rng(0)
    centres, n = pd.DataFrame({"x": np.arange(6.0) * 10, "c": pd.Categorical(list("aabbcc"))}), 4000
    chosen, copied = rng.integers(6, size=n), rng.random(n) >= 0.35
    drawn = rng.integers(3, size=n)
    codes = np.where(copied, chosen // 2, drawn).astype(float)
    numbers = centres["x"].to_numpy()[chosen][:, None] + 0.1 * rng.normal(size=(n, 1))
    group = np.full(n, 1 / 3)
    same = (codes == chosen // 2).astype(float)
    l = 0.5
    for _ in range(60):
        posterior = same * ((1 - l) + l * group)
        posterior = np.where(same == 1, 1.0, 0.0) if np.ptp(numbers) > 10 else posterior  # numbers tell the centre
        l = Masses(np.ones(n), posterior, 1.0 - posterior, np.zeros(n), group).updated(l)[0]
    assert abs(l - 0.35) < 0.03
    assert abs(Masses(np.ones(n), same, 1 - same, np.zeros(n), group).best(0.5)[0] - l) < 1e-3


def test_unusual_columns():
    rng, n = np.random.default_rng(0), 80
    frame = pd.DataFrame({"x": rng.normal(size=n)})
    frame["one"] = pd.Categorical(["only"] * n)
    frame["rows"] = pd.Categorical([f"r{i}" for i in range(n)])
    frame["twin"] = frame["again"] = pd.Categorical(rng.integers(2, size=n))
    model = LCA(reg=0.1).fit(frame)
    assert np.isfinite(model.score_samples(frame)).all()
    assert np.isfinite(model.score())
    many = pd.DataFrame({"x": rng.normal(size=1500), "m": pd.Categorical(rng.integers(500, size=1500))})
    model = ParzenWindows(0.5).fit(many)
    assert model.mixture_.categories.columns[0].n_groups == 32
    np.testing.assert_allclose(model.score_samples(many[:3]), model.score_samples(many)[:3], rtol=1e-12)


@pytest.mark.parametrize("solver", ["accelerated", "em"])
def test_tables_without_numbers(solver):
    frame = table()[["shop", "colour", "gift"]]
    for model in (LCA(solver=solver), ParzenWindows()):
        model.fit(frame)
        np.testing.assert_allclose(model.score_samples(frame[:4]), literal_density(model, frame, frame[:4]), rtol=1e-10)
        assert list(model.sample(3, random_state=0)) == list(frame)


def test_which_columns_are_levels():
    frame = table()
    assert LCA(reg=0.1).fit(frame).category_smoothing_.shape == (3,)
    assert LCA(reg=0.1, categorical_features=["shop", "colour", "gift"]).fit(frame).category_smoothing_.shape == (3,)
    X = np.column_stack([frame["price"], frame["gift"], frame["size"]]).astype(float)
    by_mask = LCA(reg=0.1, categorical_features=[False, True, False]).fit(X)
    by_place = LCA(reg=0.1, categorical_features=[1]).fit(X)
    np.testing.assert_array_equal(by_mask.score_samples(X), by_place.score_samples(X))
    assert isinstance(by_mask.sample(2, random_state=0), np.ndarray)
    assert not hasattr(LCA(reg=0.1).fit(X), "category_smoothing_")
    assert by_mask.fit(X, sample_weight=np.ones(len(X))).n_features_in_ == 3
    numeric = by_mask.set_params(categorical_features=None).fit(X)
    assert not hasattr(numeric, "category_smoothing_")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"categorical_features": "auto"}, "from_dtype"),
        ({"categorical_features": ["shop", "prize"]}, "names prize"),
        ({"categorical_features": [9]}, "positions of 5 columns"),
        ({"categorical_features": [True, False]}, "mask must have 5"),
        ({"solver": "stochastic"}, "needs columns of numbers"),
        ({"max_categories": 1}, "at least 2"),
    ],
)
def test_wrong_parameters(change, message):
    with pytest.raises(ValueError, match=message):
        LCA(reg=0.1).set_params(**change).fit(table())


def test_distances_of_levels_keep_the_digits_of_far_numbers_and_refuse_missing_values():
    near, far = table(), table()
    numbers = near.select_dtypes("float64").columns
    near[numbers], far[numbers] = near[numbers].round(3), near[numbers].round(3) + 2.0**30
    lca = LCA(reg=0.1).fit(near)
    pairs = np.array([[0, 1], [5, 9]])
    between = lca.mahalanobis(near)
    np.testing.assert_allclose(lca.mahalanobis(far), between, atol=1e-5)
    np.testing.assert_allclose(lca.pair_distance(pairs, near), between[pairs[:, 0], pairs[:, 1]], rtol=1e-12)
    np.testing.assert_allclose(lca.pair_distance(pairs, far), between[pairs[:, 0], pairs[:, 1]], rtol=1e-5)
    near.loc[3, numbers[0]] = np.nan
    for measure in (lca.mahalanobis, lambda rows: lca.pair_distance(pairs, rows)):
        with pytest.raises(ValueError, match=f"1 of 150 rows have missing values in the columns {numbers[0]}"):
            measure(near)
    with pytest.warns(UserWarning, match="1 of 150 rows have missing values"):
        assert np.isnan(lca.transform(near)[3]).any()


def test_wrong_tables():
    frame = table()
    with pytest.raises(ValueError, match=r"column name is text with 150 different values.*Drop it"):
        ParzenWindows().fit(frame.assign(name=[f"n{i}" for i in range(150)]))
    with pytest.raises(ValueError, match="column gone holds no level"):
        ParzenWindows().fit(frame.assign(gone=pd.Categorical([None] * 150)))
    model = ParzenWindows().fit(frame)
    with pytest.raises(ValueError, match="Pass the same columns"):
        model.score_samples(frame[["shop", "price", "size", "colour", "gift"]])
    with pytest.raises(ValueError, match="must hold numbers"):
        model.score_samples(frame.astype({"price": object}).assign(price="dear"))


# -- estimators on top of a density -------------------------------------------------------------------------------------


@pytest.mark.parametrize("left_out", [False, True])
def test_conditionals_of_each_column_are_ratios_of_densities(left_out):
    frame = table()
    model = LCA(reg=0.1, max_categories=2).fit(frame)
    mixture, rows = model.mixture_.compared(), model.mixture_.centres[:6].copy()
    far = rows.copy()
    far[:, 0] += 1e5  # so far that each row is conditioned by itself
    for queries in (rows, far):
        own = np.arange(6) if left_out else None
        found = column_conditionals(mixture, queries, own, (0.5,))
        assert sorted(found.levels) == [1, 3, 4]
        for k in range(5):
            others = np.delete(np.arange(5), k)
            part = mixture.marginal(others)
            whole = mixture.log_kernels(queries, own) - part.log_kernels(np.ascontiguousarray(queries[:, others]), own)
            tolerance = {"rtol": 1e-8} if queries is rows else {"rtol": 1e-4, "atol": 0.05}
            np.testing.assert_allclose(found.surprises[:, k], -whole, **tolerance)
        for k, probabilities in found.levels.items():
            np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
            if queries is rows:
                np.testing.assert_allclose(
                    probabilities, mixture.level_probabilities(rows, [1, 3, 4].index(k), own), rtol=1e-8
                )
            np.testing.assert_array_equal(found.quantiles[0][:, k], probabilities[:, :-1].argmax(axis=1))


def test_explanations_name_levels_and_likelier_ones():
    rng = np.random.default_rng(0)
    shop = rng.integers(3, size=300)
    frame = pd.DataFrame(
        {
            "price": rng.normal(size=300) + 6.0 * shop,
            "shop": pd.Categorical.from_codes(shop, ["web", "store", "mail"]),
            "country": "DE",
        }
    )
    frame.loc[7, "shop"] = "mail" if shop[7] == 0 else "web"
    detector = DensityOutlierDetector.from_density(LCA().fit(frame), contamination=0.05)
    density = detector.density_
    training = detector.explain(rows=[7])
    ((reason,),) = training.details
    assert reason.column == (1 if reason.level else 0)
    new = frame.iloc[[7, 8, 9, 10]].assign(
        shop=["web", "phone", None, "mail"], country=["DE", "DE", "DE", "FR"], price=12.0
    )
    explained = detector.explain(new)
    given = density.conditional({"price": 12.0, "country": "DE"})
    chances = np.exp(given.score_samples(pd.DataFrame({"shop": ["web", "store", "mail"]})))
    mixture = density.mixture_.only(detector._explaining())
    by_code = mixture.level_probabilities(density._codes(new)[:1], 0)[0]
    np.testing.assert_allclose(
        by_code[[2, 1, 0]] if density._categories.columns[0].levels[0] == "mail" else by_code[:3], chances, atol=0.01
    )
    reason = explained.details[0][0]
    assert (reason.level, reason.likelier[0][0]) == ("web", "mail")
    assert reason.chance == pytest.approx(chances[0], abs=0.01)
    assert explained.reasons(0)[0].startswith("shop=web: ")
    assert "given the other columns (likelier: mail 9" in explained.reasons(0)[0]
    assert explained.reasons(1)[0].startswith("shop=phone: ")
    assert explained.reasons(2) == []  # a missing level is no reason
    assert explained.reasons(3) == ["country: expected DE as in all training rows, got FR"]
    lines = explained.to_frame()
    assert lines["value"].tolist()[:2] == ["web", "phone"]
    assert lines[["low", "high"]].iloc[:2].isna().all().all()


def test_classes_have_their_own_shares():
    frame = table(300)
    y = (frame["price"] + (frame["shop"] == "mail") * 2.0 > 3.0).to_numpy()
    rest = frame.drop(columns="size")
    model = DensityClassifier(LCA(reg=0.1)).fit(rest, y)
    assert (model.predict(rest) == y).mean() > 0.85
    densities = [LCA(reg=0.1).fit(rest[y == c].astype({"colour": "category"})) for c in (False, True)]
    joint = np.log(model.priors_) + np.column_stack([d.score_samples(rest) for d in densities])
    np.testing.assert_allclose(model.predict_joint_log_proba(rest), joint, rtol=1e-10)


def test_fresh_rows_have_uniform_p_values():
    rng = np.random.default_rng(0)

    def draw(n):
        return pd.DataFrame({f"c{k}": pd.Categorical(rng.integers(60, size=n).astype(str)) for k in range(10)})

    shares = []
    for _ in range(8):
        detector = DensityOutlierDetector.from_density(ParzenWindows().fit(draw(300)), largest_group=None)
        p_values = detector.p_values(draw(300))
        shares.append([(p_values <= 0.05).mean(), (p_values <= 0.01).mean()])
    assert np.mean(shares, axis=0)[0] < 0.06
    assert np.mean(shares, axis=0)[1] < 0.015


@pytest.mark.parametrize("model", [ParzenWindows(), LCA(reg=0.1)])
def test_equal_situations_of_training_and_new_rows_tie(model):
    frame = table()[["shop", "gift", "colour"]].astype({"colour": "category"})
    frame.loc[5, "shop"] = "never"  # alone with its level, as a new row is with a level that the others lack
    frame["shop"] = frame["shop"].astype("category")
    model = clone(model).fit(frame)
    mixture = model.mixture_.compared()
    own = mixture.left_out_scores_of(mixture.centres[[5]], np.array([5]))
    asked = frame.iloc[[5]].assign(shop="unheard")
    asked["colour"] = frame["colour"].iloc[5]
    rest = np.arange(len(frame)) != 5
    new = logsumexp(
        mixture.log_factors(model._codes(asked)).sum(axis=0)[0][rest] + mixture.log_weights[rest]
    )  # its own row is no neighbour in the place of a new one
    change = mixture.categories.columns
    assert len(change) == 3
    assert own[0] < np.median(model.score_samples())
    assert abs(own[0] - new) < 0.1  # the other columns' shares differ by one row


def test_images_are_those_of_numbers_and_levels():
    frame = table()
    model = LCA(reg=0.1).fit(frame)
    images = model.transform(frame[:20])
    names = model.get_feature_names_out()
    assert images.shape == (20, len(names))
    assert names[:2].tolist() == ["lca0", "lca1"]
    assert "shop=web" in names
    np.testing.assert_allclose(images[:, :2], frame[["price", "size"]].to_numpy()[:20] @ model.components_.T)
    apart = np.square(images[:, None] - images).sum(axis=2)
    np.testing.assert_allclose(model.mahalanobis(frame[:20]), np.sqrt(apart), atol=1e-12)
    np.testing.assert_allclose(model.pair_distance([[0, 1]], frame), np.sqrt(apart[0, 1]))


@pytest.mark.parametrize(
    ("use", "error", "match"),
    [
        (lambda frame: LCAGauss().fit(frame), ValueError, "vicinal.LCA"),
        (lambda frame: LocalLCA().fit(frame), ValueError, "vicinal.LCA"),
        (lambda frame: ManifoldParzen().fit(frame), ValueError, "vicinal.LCA"),
        (lambda frame: ParzenMeanShift(LCA(reg=0.1)).fit(frame), ValueError, "vicinal.LCA"),
        (lambda frame: io.to_numpy(LCA(reg=0.1).fit(frame)), TypeError, "vicinal.LCA"),
        (lambda frame: LCA(reg=0.1).fit(frame).partial_fit(frame), ValueError, "this LCA"),
        (lambda frame: LCA(reg=0.1).partial_fit(frame), ValueError, "vicinal.LCA"),
        (lambda frame: LCA(reg=0.1).fit(frame).mixture_.mean_shift(np.zeros((1, 5))), TypeError, "vicinal.LCA"),
    ],
)
def test_what_needs_numbers_says_so(use, error, match):
    with pytest.raises(error, match=match):
        use(table())


def test_a_model_file_keeps_the_levels(tmp_path):
    frame = table()
    frame.loc[3:9, "colour"] = None
    for model in (ParzenWindows(max_categories=2), LCA(reg=0.1)):
        model.fit(frame)
        io.save(model, tmp_path / "model")
        again = io.load(tmp_path / "model")
        np.testing.assert_array_equal(again.score_samples(frame), model.score_samples(frame))
        pd.testing.assert_frame_equal(again.sample(5, random_state=0), model.sample(5, random_state=0))


def test_constant_numbers_beside_levels_are_named_as_the_reason():
    table = pd.DataFrame({"size": np.full(60, 3.0), "kind": list("xyz") * 20})
    for density in (LCA(), ParzenWindows()):
        with pytest.raises(
            ValueError, match=r"equal in their columns of numbers.*leave these columns out if others are levels"
        ):
            density.fit(table)
        assert np.isfinite(density.fit(table[["kind"]]).score(table[["kind"]]))
