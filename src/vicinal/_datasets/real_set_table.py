"""The real data sets of the papers and of the benchmarks: descriptions and sources."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class RealSet:
    """One data set.

    ``file.npz`` holds ``X`` and ``y`` (or ``X_train``, ``y_train``, ``X_test``,
    ``y_test`` if ``n_train`` is set) and the arrays named in ``extras``;
    ``data = X / divisor``.  ``counts`` are the rows per class, of the training rows
    if there is a split; a downloaded copy must agree with them.
    """

    file: str
    shape: tuple[int, int]
    about: str
    where: str
    n_train: int | None = None
    divisor: float = 1.0
    dtype: str = "float64"
    image_shape: tuple[int, int] | None = None
    feature_names: tuple[str, ...] | None = None
    target_names: tuple[str, ...] | None = None
    extras: tuple[str, ...] = ()
    openml: int | None = None  # the set's number at openml.org
    openml_labels: dict[str, int] | None = None  # the labels of that copy, and those of ours
    counts: dict[int, int] | None = None


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _numbered(labels: Iterable[str]) -> dict[str, int]:
    return {label: code for code, label in enumerate(labels)}


_DIGITS = tuple("0123456789")
_UCI = "the UCI Machine Learning Repository (archive.ics.uci.edu), under the name {!r}"

REAL_SETS = {
    "usps": RealSet(
        "usps",
        (9298, 256),
        "USPS handwritten digits, 16x16 pixels in [-1, 1] (-1 is background); 7,291 training and 2,007 "
        "test rows in the original order. The file holds thousandths (int16). Cite Hull (1994), LeCun et "
        "al. (1990).",
        "the page of The Elements of Statistical Learning (zip.train.gz, zip.test.gz)",
        n_train=7291,
        divisor=1000,
        image_shape=(16, 16),
        target_names=_DIGITS,
        openml=41082,
        openml_labels=_numbered(map(str, range(1, 11))),
        counts=dict(enumerate([1194, 1005, 731, 658, 652, 556, 664, 645, 542, 644])),
    ),
    "mnist": RealSet(
        "mnist",
        (70000, 784),
        "MNIST handwritten digits, 28x28 pixels, 0 to 255; 60,000 training and 10,000 test rows in the "
        "original order. CC BY-SA 3.0. Cite LeCun, Bottou, Bengio and Haffner (1998).",
        "openml.org (set 554)",
        n_train=60000,
        dtype="float32",
        image_shape=(28, 28),
        target_names=_DIGITS,
        openml=554,
        openml_labels=_numbered(_DIGITS),
        counts=dict(enumerate([5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949])),
    ),
    "yale_b": RealSet(
        "yaleb_32x32",
        (2414, 1024),
        "Extended Yale B, cropped frontal faces of 38 people under 59 to 64 lights, 32x32 pixels, 0 to "
        "255. target < 10 are the people of the original Yale Face Database B; azimuth and elevation are "
        "the light's direction in degrees. Free for research. Cite Georghiades et al. (2001), Lee et al. "
        "(2005).",
        "the Extended Yale Face Database B page (vision.ucsd.edu/~leekc/ExtYaleDatabase), or D. Cai's "
        "face data page (YaleB_32x32.mat)",
        dtype="float32",
        image_shape=(32, 32),
        extras=("subject", "azimuth", "elevation"),
    ),
    "yale_b_48x42": RealSet(
        "yaleb_48x42",
        (2414, 2016),
        "Extended Yale B as 'yale_b', rows in the same order, 48x42 pixels: 4x4 block means of the original crops.",
        "the Extended Yale Face Database B page (vision.ucsd.edu/~leekc/ExtYaleDatabase), CroppedYale",
        dtype="float32",
        image_shape=(48, 42),
        extras=("subject", "azimuth", "elevation"),
    ),
    "olivetti_faces": RealSet(
        "olivetti_faces",
        (400, 4096),
        "Olivetti (ORL) faces, 40 people by 10 pictures, 64x64 pixels, scaled to [0, 1] by the largest "
        "value, 242, as scikit-learn does. Free with credit to AT&T Laboratories Cambridge. Cite Samaria "
        "and Harter (1994).",
        "scikit-learn (sklearn.datasets.fetch_olivetti_faces)",
        divisor=242,
        dtype="float32",
        image_shape=(64, 64),
        counts=dict.fromkeys(range(40), 10),
    ),
    "frey_faces": RealSet(
        "frey_faces",
        (1965, 560),
        "Frey faces: 1,965 consecutive video frames of one face, 28x20 pixels, 0 to 255, no labels. Cite "
        "Roweis, Saul and Hinton (2002).",
        "S. Roweis's data page (cs.nyu.edu/~roweis/data.html, frey_rawface.mat)",
        image_shape=(28, 20),
    ),
    "xing_protein": RealSet(
        "xing_protein",
        (116, 20),
        "Protein set of Xing et al. (2002): amino-acid composition in per cent, 6 classes.",
        "code that accompanies papers on side-information (the file is usually called Protein.mat)",
    ),
    "balance_scale": RealSet(
        "uci_balance_scale",
        (625, 4),
        "Balance scale (UCI): which side goes down? Every combination of weights and distances from 1 to "
        "5; see vicinal.datasets.make_balance_scale. CC BY 4.0.",
        _UCI.format("Balance Scale"),
        feature_names=("left_weight", "left_distance", "right_weight", "right_distance"),
        target_names=("L", "B", "R"),
        counts={0: 288, 1: 49, 2: 288},
    ),
    "ionosphere": RealSet(
        "uci_ionosphere",
        (351, 34),
        "Ionosphere (UCI): radar returns, good or bad, in [-1, 1]; the second column is constant. CC BY 4.0.",
        _UCI.format("Ionosphere"),
        target_names=("b", "g"),
        openml=59,
        openml_labels={"b": 0, "g": 1},
        counts={0: 126, 1: 225},
    ),
    "boston_housing": RealSet(
        "uci_boston_housing",
        (506, 13),
        "Boston housing: the target is the median price (MEDV, in 1000 dollars, 16 censored at 50). The "
        "papers cut it into thirds. Column B encodes race: for comparing methods only. Cite Harrison and "
        "Rubinfeld (1978).",
        "StatLib (lib.stat.cmu.edu/datasets/boston)",
        feature_names=_words("CRIM ZN INDUS CHAS NOX RM AGE DIS RAD TAX PTRATIO B LSTAT"),
    ),
    "iris": RealSet(
        "uci_iris",
        (150, 4),
        "Iris, as in Fisher's paper (and scikit-learn), in cm.",
        "scikit-learn (sklearn.datasets.load_iris)",
        feature_names=("sepal length (cm)", "sepal width (cm)", "petal length (cm)", "petal width (cm)"),
        target_names=("setosa", "versicolor", "virginica"),
        counts={0: 50, 1: 50, 2: 50},
    ),
    "wine": RealSet(
        "uci_wine",
        (178, 13),
        "Wine (UCI): chemical analysis of three cultivars, raw units. CC BY 4.0.",
        "scikit-learn (sklearn.datasets.load_wine)",
        feature_names=_words(
            "alcohol malic_acid ash alcalinity_of_ash magnesium total_phenols flavanoids "
            "nonflavanoid_phenols proanthocyanins color_intensity hue od280/od315_of_diluted_wines proline"
        ),
        counts={0: 59, 1: 71, 2: 48},
    ),
    "soybean_small": RealSet(
        "uci_soybean_small",
        (47, 35),
        "Soybean (small, UCI): symptoms of four diseases as category codes. CC BY 4.0.",
        _UCI.format("Soybean (Small)"),
        target_names=("D1", "D2", "D3", "D4"),
        counts={0: 10, 1: 10, 2: 10, 3: 17},
    ),
    "pima_diabetes": RealSet(
        "uci_pima_diabetes",
        (768, 8),
        "Pima Indians diabetes: raw units; zeros stand for missing values in some columns.",
        "openml.org (set 37)",
        feature_names=("preg", "plas", "pres", "skin", "insu", "mass", "pedi", "age"),
        target_names=("negative", "positive"),
        openml=37,
        openml_labels={"tested_negative": 0, "tested_positive": 1},
        counts={0: 500, 1: 268},
    ),
    "breast_cancer_wdbc": RealSet(
        "uci_breast_cancer_wdbc",
        (569, 30),
        "Breast cancer Wisconsin (diagnostic, UCI), raw units. CC BY 4.0.",
        "scikit-learn (sklearn.datasets.load_breast_cancer)",
        target_names=("malignant", "benign"),
        counts={0: 212, 1: 357},
    ),
    "breast_cancer_original": RealSet(
        "uci_breast_cancer_orig",
        (699, 9),
        "Breast cancer Wisconsin (original, UCI), scores 1 to 10; the 16 missing values of column 5 are 0. CC BY 4.0.",
        _UCI.format("Breast Cancer Wisconsin (Original)"),
        target_names=("benign", "malignant"),
        openml=15,
        openml_labels={"benign": 0, "malignant": 1},
        counts={0: 458, 1: 241},
    ),
    "letter": RealSet(
        "uci_letter",
        (20000, 16),
        "Letter recognition (UCI), features 0 to 15; by convention, the first 16,000 rows are the training rows. CC BY 4.0.",
        _UCI.format("Letter Recognition"),
        n_train=16000,
        target_names=tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
        openml=6,
        openml_labels=_numbered("ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
        counts=dict(
            enumerate(
                [
                    633,
                    630,
                    594,
                    638,
                    616,
                    622,
                    609,
                    583,
                    590,
                    599,
                    593,
                    604,
                    648,
                    617,
                    614,
                    635,
                    615,
                    597,
                    587,
                    645,
                    645,
                    628,
                    613,
                    628,
                    641,
                    576,
                ]
            )
        ),
    ),
    "image_segmentation": RealSet(
        "uci_image_segmentation",
        (2310, 19),
        "Image segmentation (UCI): patches of outdoor pictures, raw units; 210 training and 2,100 test "
        "rows. CC BY 4.0.",
        _UCI.format("Image Segmentation"),
        n_train=210,
        target_names=("BRICKFACE", "CEMENT", "FOLIAGE", "GRASS", "PATH", "SKY", "WINDOW"),
        counts=dict.fromkeys(range(7), 30),
    ),
    "vehicle": RealSet(
        "uci_vehicle",
        (846, 18),
        "Vehicle silhouettes (Statlog), integers. CC BY 4.0.",
        _UCI.format("Statlog (Vehicle Silhouettes)"),
        target_names=("bus", "opel", "saab", "van"),
        openml=54,
        openml_labels=_numbered(("bus", "opel", "saab", "van")),
        counts={0: 218, 1: 212, 2: 217, 3: 199},
    ),
    "glass": RealSet(
        "uci_glass",
        (214, 9),
        "Glass identification (UCI), raw units; target holds the original codes 1, 2, 3, 5, 6, 7. CC BY 4.0.",
        _UCI.format("Glass Identification"),
        feature_names=("RI", "Na", "Mg", "Al", "Si", "K", "Ca", "Ba", "Fe"),
        openml=41,
        openml_labels={
            "build wind float": 1,
            "build wind non-float": 2,
            "vehic wind float": 3,
            "vehic wind non-float": 4,
            "containers": 5,
            "tableware": 6,
            "headlamps": 7,
        },
        counts={1: 70, 2: 76, 3: 17, 5: 13, 6: 9, 7: 29},
    ),
    "pendigits": RealSet(
        "uci_pendigits",
        (10992, 16),
        "Pen-based digits (UCI): eight points of the pen, 0 to 100; 7,494 training and 3,498 test rows. CC BY 4.0.",
        _UCI.format("Pen-Based Recognition of Handwritten Digits"),
        n_train=7494,
        target_names=_DIGITS,
        openml=32,
        openml_labels=_numbered(_DIGITS),
        counts=dict(enumerate([780, 779, 780, 719, 780, 720, 720, 778, 719, 719])),
    ),
    "optdigits": RealSet(
        "uci_optdigits",
        (5620, 64),
        "Optical digits (UCI), 8x8 counts 0 to 16; 3,823 training and 1,797 test rows (the test rows are "
        "scikit-learn's digits). CC BY 4.0.",
        _UCI.format("Optical Recognition of Handwritten Digits"),
        n_train=3823,
        image_shape=(8, 8),
        target_names=_DIGITS,
        openml=28,
        openml_labels=_numbered(_DIGITS),
        counts=dict(enumerate([376, 389, 380, 389, 387, 376, 377, 387, 380, 382])),
    ),
    "satimage": RealSet(
        "uci_satimage",
        (6435, 36),
        "Landsat satellite (Statlog): 3x3 pixels in 4 bands; target holds the original codes 1, 2, 3, 4, "
        "5, 7; 4,435 training and 2,000 test rows. CC BY 4.0.",
        _UCI.format("Statlog (Landsat Satellite)"),
        n_train=4435,
        counts={1: 1072, 2: 479, 3: 961, 4: 415, 5: 470, 7: 1038},
    ),
    "sonar": RealSet(
        "uci_sonar",
        (208, 60),
        "Sonar (UCI): rocks and mines, 60 bands in [0, 1]. CC BY 4.0.",
        _UCI.format("Connectionist Bench (Sonar, Mines vs. Rocks)"),
        target_names=("rock", "mine"),
        openml=40,
        openml_labels={"Rock": 0, "Mine": 1},
        counts={0: 97, 1: 111},
    ),
    "covertype": RealSet(
        "covertype",
        (581012, 10),
        "Forest cover types (UCI): the 10 numeric columns in raw units and the original order; wilderness"
        " (0 to 3) and soil (0 to 39) are the one-hot blocks as indices; target is 1 to 7. CC BY 4.0. "
        "Cite Blackard and Dean (1999).",
        "scikit-learn (sklearn.datasets.fetch_covtype)",
        dtype="float32",
        feature_names=_words(
            "Elevation Aspect Slope Horizontal_Distance_To_Hydrology Vertical_Distance_To_Hydrology "
            "Horizontal_Distance_To_Roadways Hillshade_9am Hillshade_Noon Hillshade_3pm "
            "Horizontal_Distance_To_Fire_Points"
        ),
        extras=("wilderness", "soil"),
        counts={1: 211840, 2: 283301, 3: 35754, 4: 2747, 5: 9493, 6: 17367, 7: 20510},
    ),
    "glove": RealSet(
        "glove_100d_100k_int8",
        (100000, 100),
        "GloVe 6B word vectors, 100 dimensions, 100,000 frequent words, no labels. Quantised: the file "
        "holds int8 in steps of 0.032 (largest error 0.016, spread of the values 0.51). words names the "
        "rows. PDDL 1.0. Cite Pennington, Socher and Manning (2014).",
        "the GloVe page (nlp.stanford.edu/projects/glove, glove.6B.zip)",
        divisor=31.25,  # 1 / 0.032
        dtype="float32",
        extras=("words",),
    ),
}
