"""Adapt embeddings to a task from a few pairs that belong together.

Word vectors place "walk" near "run". Suppose that in your search "walk", "walks", "walked" and "walking" should
count as the same word.  This script takes such groups for a few verbs, uses RCA to scale down the directions along which
they differ, and searches for the other forms of verbs that were *not* among them.

    VICINAL_DATA=folder python examples/adapt_embeddings.py      # GloVe words from a local folder
    python examples/adapt_embeddings.py --generated              # generated vectors of 384 dimensions, needs no data

It prints the recall@10, the share of a word's other forms among its ten nearest words, before and after, with
Ledoit-Wolf shrinkage (the default) and without (the paper).
"""

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np

from vicinal import RCA, chunklets_from_pairs

sys.path.append(str(Path(__file__).resolve().parents[1]))  # the loader of real sets stands in `papers`
from papers.real_sets import load


def glove_groups(n_words=40_000):
    """Return vectors of unit length, and groups of rows: a word with its -s, -ed and -ing forms."""
    glove = load("glove")
    words = [str(word) for word in glove.words[:n_words]]
    row = {word: i for i, word in enumerate(words)}
    groups, taken = [], set()
    for word in words[: n_words // 2]:
        forms = [word, *(word + ending for ending in ("s", "ed", "ing") if word + ending in row)]
        if len(word) > 3 and len(forms) > 2 and not taken.intersection(forms):
            groups.append([row[form] for form in forms])
            taken.update(forms)
    return unit(np.asarray(glove.data[:n_words], dtype=np.float32)), groups


def generated_groups(n_groups=1100, d=384, seed=0):
    """Return groups of three around random centres, which differ most along twenty directions, as if by style."""
    rng = np.random.default_rng(seed)
    style = np.linalg.qr(rng.normal(size=(d, 20)))[0]
    centres = np.repeat(rng.normal(size=(n_groups, d)), 3, axis=0)
    X = centres + 0.9 * rng.normal(size=centres.shape) + 8.0 * rng.normal(size=(len(centres), 20)) @ style.T
    return unit(X), np.arange(len(X)).reshape(-1, 3).tolist()


def unit(X):
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def recall(Z, groups, k=10):
    """Return the share of the other members of a group among the k nearest rows of its first member, by cosine."""
    Z = unit(Z)
    queries = np.array([group[0] for group in groups])
    found = []
    for first in range(0, len(queries), 100):
        here = queries[first : first + 100]
        similarity = Z[here] @ Z.T
        similarity[np.arange(len(here)), here] = -np.inf
        nearest = np.argpartition(-similarity, k, axis=1)[:, :k]
        found += [
            np.isin(group[1:], near).mean() for group, near in zip(groups[first : first + 100], nearest, strict=True)
        ]
    return float(np.mean(found))


def experiment(X, groups, budgets=(20, 50, 100, 300), n_held_out=300, seed=0):
    """Return the recall on held-out groups, for growing numbers of training groups."""
    order = np.random.default_rng(seed).permutation(len(groups))
    held_out = [groups[i] for i in order[:n_held_out]]
    rows = [("before", "-", recall(X, held_out))]
    for budget in budgets:
        training = [groups[i] for i in order[n_held_out : n_held_out + budget]]
        pairs = [(group[0], other) for group in training for other in group[1:]]
        # All rows are passed, because rows in no pair contribute to the total covariance.
        chunklets = chunklets_from_pairs(pairs, len(X))
        for shrinkage in (0, "auto"):
            with warnings.catch_warnings():
                # Without shrinkage, few pairs support few directions: the others are dropped, with a warning.
                warnings.filterwarnings("ignore", message=".*directions are kept")
                rca = RCA(shrinkage=shrinkage).fit(X, chunklets)
            name = f"{budget} groups, {len(pairs)} pairs"
            rows.append((name, f"{shrinkage} ({rca.shrinkage_:.2f})", recall(rca.transform(X), held_out)))
    return rows


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--generated", action="store_true", help="use generated vectors")
    generated = parser.parse_args(arguments).generated
    if not generated:
        try:
            X, groups = glove_groups()
        except FileNotFoundError as error:
            print(f"{error}\nUsing generated vectors instead.\n")
            generated = True
    if generated:
        X, groups = generated_groups()
    print(f"{len(X)} vectors of {X.shape[1]} dimensions, {len(groups)} groups, of which 300 are held out\n")
    print(f"{'learned from':<24}{'shrinkage':<14}{'recall@10':>9}")
    rows = experiment(X, groups)
    for learned_from, shrinkage, value in rows:
        print(f"{learned_from:<24}{shrinkage:<14}{value:>9.3f}")
    return rows


if __name__ == "__main__":
    main()
