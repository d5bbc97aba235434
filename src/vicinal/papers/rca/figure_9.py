"""Figure 9 by a stand-in: sequences as chunklets.

The paper's clips of a surveillance camera are not available. Their point is that the frames of a clip are a chunklet
that nobody had to label, and that such frames depend on each other. Here 20 people of the faces of Figure 4 are
filmed while the light moves from side to side: a clip is a run of pictures of one person that are next to each other in
the direction of the light, six or seven clips a person, 130 in all as in the paper. Clips are the only supervision. For
comparison, chunklets of the same sizes whose pictures are drawn from all of the person's lights.
"""

import numpy as np

from vicinal import RCA
from vicinal.papers._drawing import mean_and_error, panels, plus_minus
from vicinal.papers._experiment import Claim, Summary, Table
from vicinal.papers.rca._faces import PLACES, STAND_IN, coefficients, draw_purity, faces, purity

TITLE = "Figure 9 (stand-in): clips of a film as chunklets"
COVERS = ("figure 9",)
NEEDS = ("yale_b",)
ORDER = 9
MINUTES = (0.2, 0.2)

_METHODS = {"before": "before RCA", "clips": "RCA, clips", "independent": "RCA, same sizes at random"}


def units(setting):
    return [{"run": run} for run in range(20 if setting.full else 6)]


def measure(setting, run):
    rng = np.random.RandomState(run)
    X, people = coefficients(setting)
    lights = faces(setting)[2]
    filmed = np.flatnonzero(np.isin(people, rng.permutation(np.unique(people))[:20]))
    X, people, lights = X[filmed], people[filmed], lights[filmed]
    clips, independent = (np.empty(len(people), dtype=int) for _ in range(2))
    for number, person in enumerate(np.unique(people)):
        own = np.flatnonzero(people == person)
        # row by row of the lamp's height, from side to side: neighbours in the list are neighbours in the light
        order = own[np.lexsort((lights[own, 0], lights[own, 1].round(-1)))]
        cuts = np.sort(rng.choice(np.arange(1, len(own)), 5 + number % 2, replace=False))
        piece = np.searchsorted(cuts, np.arange(len(own)), side="right")
        clips[order] = 100 * number + piece
        independent[rng.permutation(own)] = 100 * number + piece
    return {
        "before": purity(X, people),
        "clips": purity(RCA(shrinkage=0).fit_transform(X, clips), people),
        "independent": purity(RCA(shrinkage=0).fit_transform(X, independent), people),
        "n_clips": len(np.unique(clips)),
    }


def summarise(setting, records):
    k = PLACES[-1]
    last = {name: np.array([record[name][-1] for record in records]) for name in _METHODS}
    first = {name: np.array([record[name][0] for record in records]) for name in _METHODS}
    rows = [[words, plus_minus(first[name], 3), plus_minus(last[name], 3)] for name, words in _METHODS.items()]
    loss, error = mean_and_error(last["independent"] - last["clips"])
    claims = [
        Claim(
            f"clips make RCA bring right neighbours closer (purity of {k}, by 0.1)",
            (last["clips"] - last["before"]).mean() > 0.1,
            f"{last['before'].mean():.3f} before, {last['clips'].mean():.3f} after",
        ),
        Claim(
            f"dependent frames tell less than independent ones (purity of {k}, by two standard errors)",
            loss > 2 * error,
            f"{last['clips'].mean():.3f} from clips, {last['independent'].mean():.3f} from random chunklets: "
            f"{loss:.3f} ± {error:.3f} less",
        ),
    ]
    remarks = [
        f"About {np.mean([r['n_clips'] for r in records]):.0f} clips of 20 people; {len(records)} choices of people and cuts. "
        "The paper has 6,000 colour histograms of 130 clips, in L1 distance before RCA; its numbers do not apply here."
    ]
    remarks += [] if setting.full else [STAND_IN]
    return Summary([Table(["metric", "purity of 1", f"purity of {k}"], rows)], claims, remarks)


def draw(setting, records):
    figure, axes = panels(1, 1, size=(6.6, 4.8))
    curves = {words: [record[name] for record in records] for name, words in _METHODS.items()}
    draw_purity(axes[0, 0], curves, "clips as chunklets")
    axes[0, 0].legend()
    return {"figure-9": figure}
