"""Test that the examples about LCA run and agree with their docstrings."""

import importlib.util
from pathlib import Path

import pytest
from needs import needs

from vicinal import datasets

FOLDER = Path(__file__).parents[1] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_text_picture(tmp_path):
    needs("matplotlib")
    example = load("to_be_or_not_to_be")
    images, letters = example.images_of(1200)
    aspects = {name: example.letter_aspect(image, letters) for name, image in images.items()}
    assert aspects["PCA, whitened"] < 0.1
    assert 0.7 < aspects["LCA"] / aspects["the original"] < 1.4
    example.draw(images, tmp_path / "text.png")
    assert (tmp_path / "text.png").stat().st_size > 10_000


def test_outliers():
    aucs = load("outliers_by_leave_one_out").compare(n_rounds=2)
    assert aucs["LCA"] == max(aucs.values()) > 0.9


@pytest.mark.slow
def test_isomap():
    found = load("isomap_on_lca").compare(n=500)
    assert found["LCA"] > 0.95 > 0.6 > max(found["raw"], found["standardised"], found["whitened"])


@pytest.mark.slow
def test_spectral_clustering():
    example = load("spectral_clustering_on_lca")
    plain, lca, local, found = example.compare(*datasets.make_two_circles(300, random_state=0), 4)
    assert plain < 0.7
    assert lca > 0.95
    assert local > 0.95
    assert found == 2
