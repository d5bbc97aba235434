"""Exact sums over the assignments that put certain groups into different components, and the best such assignment.

The edges of a graph connect groups that must not share a component. Its connected parts are independent; within a part the
groups are eliminated one after the other (a junction tree). Eliminating group v leaves a table over its separator, which
consists of the remaining groups that are connected to v, directly or by an earlier elimination:

    m_v(x_S) = log sum over x_v of exp( u_v(x_v) + messages(x_v, x_S) ),   x_v different from the groups that v is joined to.

The last table is log Z, and running back through the tables gives each group's marginal probabilities. A part costs
k^(w+1), with k components and w groups in its largest separator: 1 for chains and trees.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.special import logsumexp, softmax

# The maximum number of entries of a table; with more, a fit would take minutes per iteration and gigabytes of memory.
_LARGEST_TABLE = 2**20


class _Step(NamedTuple):
    """The elimination of one group; groups are given by their position in the order of elimination."""

    separator: tuple[int, ...]
    apart: tuple[int, ...]


class _Part(NamedTuple):
    """All connected parts of one shape: the groups in the order of elimination, of shape (n_parts, n_groups)."""

    groups: NDArray[Any]
    steps: tuple[_Step, ...]


class CannotLinks:
    """Groups that may not share a component.

    Parameters
    ----------
    pairs : int array of shape (q, 2)
        The groups of each pair; a pair may be repeated.
    n_groups : int
    n_components : int
    """

    def __init__(self, pairs: NDArray[Any], n_groups: int, n_components: int) -> None:
        self.n_components = n_components
        pairs = np.unique(np.sort(pairs, axis=1), axis=0)
        joined = csr_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(n_groups, n_groups))
        part_of = connected_components(joined, directed=False)[1]
        self._parts = _parts_by_shape(pairs, part_of, n_components)
        linked = np.zeros(n_groups, dtype=bool)
        linked[pairs.ravel()] = True
        self._free = np.flatnonzero(~linked)

    def can_be_kept(self) -> bool:
        """Return whether there are enough components to keep all pairs apart."""
        n_groups = len(self._free) + sum(part.groups.size for part in self._parts)
        return bool(np.isfinite(self.log_sum(np.zeros((n_groups, self.n_components)))[0]))

    def log_sum(self, potentials: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        """Return the logarithm of the sum over all admissible assignments, and each group's probabilities.

        Parameters
        ----------
        potentials : array of shape (n_groups, n_components)
            The logarithm of the factor of a group in each component; the weight of an assignment is the product of these.
        """
        shares = np.empty_like(potentials)
        shares[self._free] = softmax(potentials[self._free], axis=1)
        total = float(logsumexp(potentials[self._free], axis=1).sum())
        for part in self._parts:
            tables, messages = _eliminate(part, potentials, logsumexp)
            total += float(sum(message.sum() for message in messages if message.ndim == 1))
            beliefs: dict[int, NDArray[Any]] = {}
            for place in reversed(range(len(part.steps))):
                separator = part.steps[place].separator
                outer = np.ones(len(part.groups))
                if separator:
                    outer = _kept(beliefs[separator[0]], part.steps[separator[0]], separator)
                message = np.where(np.isneginf(messages[place]), 0.0, messages[place])  # its table is -inf as well
                beliefs[place] = np.exp(tables[place] - message[:, None]) * np.expand_dims(outer, 1)
                shares[part.groups[:, place]] = beliefs[place].sum(axis=tuple(range(2, beliefs[place].ndim)))
        return total, shares

    def best(self, potentials: NDArray[Any]) -> NDArray[Any]:
        """Return the admissible assignment of largest weight: a component for each group."""
        labels = potentials.argmax(axis=1)
        for part in self._parts:
            tables, _ = _eliminate(part, potentials, np.max)
            rows = np.arange(len(part.groups))
            for place in reversed(range(len(part.steps))):
                chosen = tuple(labels[part.groups[:, other]] for other in part.steps[place].separator)
                table = np.moveaxis(tables[place], 1, -1)
                labels[part.groups[:, place]] = table[(rows, *chosen)].argmax(axis=1)
        return labels


def _eliminate(part: _Part, potentials: NDArray[Any], reduce: Any) -> tuple[list[Any], list[Any]]:
    """Return the table of each step over its group (axis 1) and separator, and the remaining table after eliminating the group."""
    k = potentials.shape[1]
    messages: list[Any] = []
    tables: list[Any] = []
    for place, step in enumerate(part.steps):
        n_axes = len(step.separator)
        table = potentials[part.groups[:, place]].reshape(-1, k, *[1] * n_axes)
        for other in step.apart:
            same = np.where(np.eye(k, dtype=bool), -np.inf, 0.0)
            table = table + same.reshape(k, *[k if q == other else 1 for q in step.separator])
        for earlier in range(place):
            separator = part.steps[earlier].separator
            if separator and separator[0] == place:
                shape = [k if q in separator else 1 for q in step.separator]
                table = table + messages[earlier].reshape(-1, k, *shape)
        table = np.broadcast_to(table, (len(part.groups), *[k] * (n_axes + 1)))
        tables.append(table)
        messages.append(reduce(table, axis=1))
    return tables, messages


def _kept(belief: NDArray[Any], step: _Step, separator: tuple[int, ...]) -> NDArray[Any]:
    """Return the sum of a belief over those of its groups that are not in the separator; the first is its own group."""
    gone = [axis for axis, place in enumerate(step.separator, start=2) if place not in separator]
    return belief.sum(axis=tuple(gone))


def _parts_by_shape(pairs: NDArray[Any], part_of: NDArray[Any], k: int) -> list[_Part]:
    """Return connected parts, grouped by shape, because the tables of one shape are computed at once."""
    parts: dict[tuple[_Step, ...], list[list[int]]] = {}
    order = np.argsort(part_of[pairs[:, 0]], kind="stable")
    edges = pairs[order]
    cuts = np.flatnonzero(np.diff(part_of[edges[:, 0]])) + 1
    for component in np.split(edges, cuts) if len(edges) else ():
        groups, steps = _elimination(component.tolist())
        widest = max(len(step.separator) for step in steps)
        if k ** (widest + 1) > _LARGEST_TABLE:
            raise ValueError(
                f"cannot_link connects {len(groups)} groups so densely that their assignments need a table of "
                f"{k}^{widest + 1} entries. Pass fewer pairs in cannot_link, or lower n_components."
            )
        parts.setdefault(steps, []).append(groups)
    return [_Part(np.array(groups), steps) for steps, groups in parts.items()]


def _elimination(edges: list[list[int]]) -> tuple[list[int], tuple[_Step, ...]]:
    """Return an order that keeps separators small (the group with fewest neighbours goes first), and its steps."""
    joined: dict[int, set[int]] = {}
    for left, right in edges:
        joined.setdefault(left, set()).add(right)
        joined.setdefault(right, set()).add(left)
    told = {group: frozenset(others) for group, others in joined.items()}
    order, separators = [], []
    while joined:
        group = min(joined, key=lambda group: (len(joined[group]), group))
        around = joined.pop(group)
        for other in around:
            joined[other] = (joined[other] | around) - {group, other}
        order.append(group)
        separators.append(around)
    place = {group: p for p, group in enumerate(order)}
    steps = tuple(
        _Step(tuple(sorted(place[q] for q in around)), tuple(sorted(place[q] for q in around & told[group])))
        for group, around in zip(order, separators, strict=True)
    )
    return order, steps
