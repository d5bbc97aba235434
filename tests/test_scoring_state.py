"""Test that scoring does not change an estimator; caches are outside of it."""

import pickle

import pytest
from model_file_fits import FITS, answers, fitted_once
from needs import needs


@pytest.mark.parametrize("name", [name for name in FITS if not name.startswith("sklearn.")])
def test_scoring_leaves_an_estimator_as_it_was(name):
    if name.startswith("NeuralNCA"):
        needs("torch")
    # A first round of pickling makes equal objects one and the same, which the second comparison would notice.
    estimator = pickle.loads(pickle.dumps(fitted_once(name)))
    before = pickle.dumps(estimator)
    answers(estimator)
    assert pickle.dumps(estimator) == before
