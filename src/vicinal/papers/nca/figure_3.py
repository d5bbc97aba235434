"""Figure 3: a network finds polar coordinates.

Pairs of faces of two people, turned and scaled alike but for a little noise (sec. 5), with the weights of the paper:
angles up to 45 degrees, heights from 25 to 35 pixels, pictures of 35x35 pixels. The network has one hidden layer of
100 logistic units and two outputs, and climbs Eq. 8 (`NeuralNCA`). Nothing tells it angles or heights. FERET-B, the
paper's 5,000 faces, is not freely available: Olivetti faces (40 people; 30 train, 10 test) stand in, and drawn faces
in quick mode. Each point is a face of a person that the network has not seen.
"""

import numpy as np
from scipy.optimize import minimize

from vicinal.datasets import make_face_pairs, make_faces
from vicinal.papers._drawing import panels, plus_minus
from vicinal.papers._experiment import Claim, Summary, Table

TITLE = "Figure 3: NeuralNCA on turned and scaled faces"
COVERS = ("figure 3",)
EXTRAS = {"torch": "torch"}
NEEDS = ("olivetti_faces",)
ORDER = 3


def units(setting):
    return [{"run": run} for run in range(3 if setting.full else 2)]


def measure(setting, run):
    from vicinal import NeuralNCA

    train, test = _pairs(setting, run)
    nca = NeuralNCA(2, objective="pairs", hidden=100, max_iter=60, batch_size=256, device="cpu", random_state=run)
    nca.fit(train.data, pairs=train.pairs, pair_weight=train.weights)
    points = nca.transform(test.data)
    angle, height = polar_correlations(points, test.angles, test.heights)
    return {
        "angle": float(angle),
        "height": float(height),
        "points": points.round(3).tolist() if run == 0 else [],
        "angles": test.angles.round(1).tolist() if run == 0 else [],
        "heights": test.heights.round(1).tolist() if run == 0 else [],
    }


def _pairs(setting, run):
    if not setting.full:
        shape = {"size": 14, "heights": (9.0, 14.0), "height_noise": 0.6}
        drawn = [make_faces(n, size=28, random_state=seed) for n, seed in ((60, run), (30, 100 + run))]
        return [make_face_pairs(f, n, random_state=run, **shape) for f, n in zip(drawn, (500, 150), strict=True)]
    olivetti = setting.load("olivetti_faces")
    faces, people = olivetti.data.reshape(-1, 64, 64), olivetti.target
    parts = [people < 30, people >= 30]
    return [
        make_face_pairs(faces[part], n, groups=people[part], random_state=run)
        for part, n in zip(parts, (3000, 200), strict=True)
    ]


def polar_correlations(points, angles, heights):
    """How well direction and distance, seen from the best centre, tell the angle and the height of the faces."""
    order = np.argsort(angles)

    def correlations(centre):
        away = points[order] - centre
        direction = np.unwrap(np.arctan2(away[:, 1], away[:, 0]))
        distance = np.linalg.norm(away, axis=1)
        return abs(np.corrcoef(direction, angles[order])[0, 1]), abs(np.corrcoef(distance, heights[order])[0, 1])

    grid = [points.mean(0) + points.std(0) * np.array([a, b]) for a in range(-3, 4) for b in range(-3, 4)]
    first = max(grid, key=lambda centre: sum(correlations(centre)))
    return correlations(minimize(lambda centre: -sum(correlations(centre)), first, method="Nelder-Mead").x)


def summarise(setting, records):
    angle, height = ([record[key] for record in records] for key in ("angle", "height"))
    claims = [
        Claim(
            "the direction of the output tells the angle of the face (correlation above 0.95)",
            min(angle) > 0.95,
            f"smallest {min(angle):.3f}",
        ),
        Claim(
            "its distance from a centre tells the size of the face (correlation above 0.6)",
            min(height) > 0.6,
            f"smallest {min(height):.3f}",
        ),
    ]
    rows = [["direction and angle", plus_minus(angle, 3)], ["distance and height", plus_minus(height, 3)]]
    remarks = [
        "The paper shows a picture without numbers, of faces from 5,000 people; here there are "
        + (
            "30 to learn from, in front of a background cut away at the border of the picture."
            if setting.full
            else "60 drawn ones."
        ),
    ]
    return Summary([Table(["", f"correlation ({len(records)} networks)"], rows)], claims, remarks)


def draw(setting, records):
    points, angles, heights = (np.array(records[0][key]) for key in ("points", "angles", "heights"))
    figure, axes = panels(1, 2, size=(5.8, 5.2))
    # Segments as the face stands: upright is vertical, positive angles turn counter-clockwise.
    across = (
        0.02 * np.ptp(points, axis=0).max() * np.column_stack([-np.sin(np.deg2rad(angles)), np.cos(np.deg2rad(angles))])
    )
    ends = np.stack([points - across, points + across])
    axes[0, 0].plot(*ends.transpose(2, 0, 1), color="#0072B2", linewidth=1.5)
    axes[0, 0].set(title="orientation of the face")
    size = (heights - heights.min()) / np.ptp(heights)
    axes[0, 1].scatter(*points.T, s=4 + 120 * size**2, facecolors="none", edgecolors="#D55E00")
    axes[0, 1].set(title="size of the face (larger circles)")
    for ax in axes[0]:
        ax.set(xlabel="output 1", ylabel="output 2")
    return {"figure-3": figure}
