"""The Dask backend: the compiled backend, with its pieces of work done by the workers of a cluster.

::

      this process        holds the rows, decides (orders, plans, accuracy), and adds the results
          |               in each pass, sends the code of a piece, the metric, and vectors that have changed
      each worker         holds the rows, maps them by the metric and packs them, and computes whole subtrees of the
                          tree of sums (`work/sharing.py`), about `TASKS_PER_THREAD` for each of its threads

Tasks are idempotent and independent of each other: Dask runs those of a lost worker elsewhere, and those that bring the data.
The active client is found at each call and never kept.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from inspect import signature
from typing import Any, ClassVar, cast

import numpy as np
from distributed import Client, Future

from vicinal._engine import tuning
from vicinal._engine.backends import backend_class
from vicinal._engine.choice import numba_is_missing
from vicinal._engine.contract import Placed, Points
from vicinal._engine.dask.cluster import active_client, cancel, finished, held_by_workers, new_key, threads_of_workers
from vicinal._engine.dask.packing import Packed, Recipes
from vicinal._engine.dask.worker import Answer, Group, Job, do_pieces
from vicinal._engine.families import Kernel
from vicinal._engine.queries import Queries
from vicinal._engine.settings import Engine
from vicinal._engine.work.blocks import cut_by_cost
from vicinal._engine.work.sharing import FAN, Filled, Node, Sums, Touched, WithItem, nodes_by_cost, shared_by
from vicinal._version import __version__

_HELD = 32  # arrays that a problem keeps on the workers: those that were used last
_ASK_AGAIN = 1.0  # the interval after which the threads of the workers are counted again, in seconds
_MEMORY = "Each worker holds all rows, and two copies of them under the metric."


class DaskBackend:
    """Rows that are in this process and on the workers of the active Dask client.

    Parameters
    ----------
    points : Points
    engine : Engine
    """

    name: ClassVar[str] = "dask"

    def __init__(self, points: Points, engine: Engine) -> None:
        active_client()  # its absence should be reported before a fit begins
        kind = "reference" if numba_is_missing() else "cpu"
        self._here = backend_class(kind)(points, replace(engine, kind=kind))
        self._cluster = ClusterSharing()

    def at(self, kernel: Kernel) -> Placed:
        """Place the rows under a kernel."""
        with shared_by(self._cluster):
            return cast(Placed, _PlacedOnCluster(self._here.at(kernel), self._cluster))


class _PlacedOnCluster:
    """A placement of this process whose sweeps over many pairs are done by the workers."""

    # Methods that take queries but visit few pairs; all others that take queries are sweeps.
    _LOCAL = frozenset(("coordinates", "float64_images", "float64_pairs", "pair_scores"))

    def __init__(self, here: Placed, cluster: "ClusterSharing") -> None:
        self._here, self._cluster = here, cluster
        self._pair_cost = here.n_coordinates + tuning.PAIR_COST

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # copies and unpickled objects have no `_here` at first
            raise AttributeError(name)
        found = getattr(self._here, name)
        if name in self._LOCAL or not callable(found) or next(iter(signature(found).parameters), "") != "queries":
            return found

        def sweep(queries: Queries, *args: Any, **options: Any) -> Any:
            with shared_by(self._those(queries)):
                return found(queries, *args, **options)

        return sweep

    def _those(self, queries: Queries) -> "ClusterSharing | None":
        """Return the `Sharing` for the work on some queries; None if the work is small even if no pair is skipped."""
        n = len(self._here.points.rows)
        if float(queries.count(n)) * n * self._pair_cost < tuning.SHARED_WORK:
            return None
        self._cluster.pair_cost = self._pair_cost
        return self._cluster

    def candidates(self, queries: Queries, floors: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the results of the placement; the caller's work between two of them is done by this process."""
        those = self._those(queries)
        with shared_by(those):
            found = iter(self._here.candidates(queries, floors))
        while True:
            with shared_by(those):
                pairs = next(found, None)
            if pairs is None:
                return
            yield pairs


class ClusterSharing:
    """Shares pieces of work with the workers of the active client; each problem has one."""

    def __init__(self) -> None:
        self._recipes = Recipes()
        self.pair_cost = tuning.PAIR_COST  # of the placement whose work is shared
        self._workers: tuple[float, dict[str, int]] = -np.inf, {}  # when they were counted, and the threads of each
        self._held: OrderedDict[tuple[str, str], Future] = OrderedDict()  # by the client and the digest of the array

    def remember(self, made: Any, make: Callable[..., Any], *args: Any) -> None:
        """Note that workers can make `made` by themselves; see `sharing.remember`."""
        self._recipes.add(made, make, args)

    def takes(self, costs: np.ndarray | None) -> bool:
        """Return whether the work is worth sending: two threads save half of it, and many save nearly all.

        A single one is treated like two, because whoever starts it wants it to work.
        """
        if costs is None:
            return True
        threads = sum(self._threads_of_workers(active_client()).values())
        return float(costs.sum()) * self.pair_cost * (1.0 - 1.0 / max(threads, 2)) >= tuning.SHARED_WORK

    def run(
        self, work: Callable[[Any], Any], pieces: Sequence[Any], filled: Filled, costs: np.ndarray | None = None
    ) -> Iterator[Any]:
        """Yield ``work(piece)`` for each piece, in order."""
        if pieces:
            each = np.ones(len(pieces)) if costs is None else costs
            parts = cut_by_cost(each, self._tasks_wanted(costs))
            groups = [Group(None, pieces[lo:hi]) for lo, hi in parts]
            for results in self._answers(work, groups, filled, [float(each[lo:hi].sum()) for lo, hi in parts]):
                yield from results

    def run_nodes(
        self,
        work: Callable[[Any], Sums | Touched | WithItem],
        pieces: Sequence[Any],
        filled: Filled,
        costs: np.ndarray | None = None,
    ) -> Iterator[Node]:
        """Yield consecutive nodes of the tree over the pieces."""
        if pieces:
            each = np.ones(len(pieces)) if costs is None else costs
            nodes = nodes_by_cost(each, self._tasks_wanted(costs))
            groups = [Group(level, pieces[i : i + FAN**level]) for i, level in nodes]
            yield from self._answers(
                work, groups, filled, [float(each[i : i + FAN**level].sum()) for i, level in nodes]
            )

    # -- tasks -----------------------------------------------------------------------------------------------------

    def _tasks_wanted(self, costs: np.ndarray | None) -> int:
        """Return how many tasks the work should be cut into: a given number for each thread, but none that takes less time than
        sending it."""
        threads = max(sum(self._threads_of_workers(active_client()).values()), 1)
        most = tuning.TASKS_PER_THREAD * threads
        return most if costs is None else int(min(most, max(costs.sum() / tuning.LEAST_TASK_PAIRS, threads)))

    def _threads_of_workers(self, client: Client) -> dict[str, int]:
        """Return the number of threads of each worker, counted at most a moment ago."""
        now, (asked, workers) = time.monotonic(), self._workers
        if now - asked > _ASK_AGAIN:
            workers = threads_of_workers(client)
            self._workers = now, workers
        return workers

    def _answers(
        self, work: Callable[[Any], Any], groups: list[Group], filled: Filled, costs: list[float]
    ) -> Iterator[Any]:
        """Yield the results of tasks on groups of pieces, in order, and copy the arrays that they fill."""
        client = active_client()
        packed = Packed(self._recipes, filled.arrays)
        job = self._job(packed, packed.dumps((work, filled.rows)), filled)
        # The most expensive tasks are begun first, so that no thread works alone at the end for long.
        handed_out = sorted(range(len(groups)), key=lambda i: -costs[i])
        futures = self._submit(client, work, job, [groups[i] for i in handed_out], self._data(client, packed.data))
        tasks, answers = dict(zip(futures, handed_out, strict=True)), {}
        try:
            for following in range(len(groups)):
                while following not in answers:
                    for future, answer in finished(client, list(tasks), lambda: _MEMORY):
                        answers[tasks.pop(future)] = answer
                yield self._taken(answers.pop(following), filled)
        finally:
            cancel(client, tasks)

    def _job(self, packed: Packed, code: bytes, filled: Filled) -> Job:
        shapes = [(array.shape, array.dtype) for array in filled.arrays]
        alive = self._recipes.alive()
        return Job(__version__, code, packed.used, self._recipes.problem, alive, shapes, list(packed.data))

    @staticmethod
    def _taken(answer: Answer, filled: Filled) -> Any:
        """Return the results of a task, and copy the arrays that it filled."""
        for array, part in zip(filled.arrays, answer.filled, strict=True):
            if array.size:
                array[answer.start : answer.start + len(part)] = part
        return answer.results

    @staticmethod
    def _submit(
        client: Client, work: Callable[[Any], Any], job: Job, groups: list[Group], data: list[Future]
    ) -> list[Future]:
        """Submit a task for each group, in one message: the scheduler takes some milliseconds for each message."""
        # The part of a key before the last dash names the task in Dask's dashboard.
        name = work.__qualname__.replace(".<locals>", "").rpartition(".")[0].strip("_").replace("._", ".")
        keys = [new_key(f"vicinal.pairs.{name}") for _ in groups]
        job_of_each, *data_of_each = ([thing] * len(groups) for thing in (job, *data))
        return list(
            client.map(
                do_pieces,
                job_of_each,
                groups,
                *data_of_each,
                key=keys,
                pure=False,
                retries=0,
            )
        )

    def _data(self, client: Client, arrays: dict[str, np.ndarray]) -> list[Future]:
        """Return the arrays as data of the workers; those that they do not have are sent."""
        held = self._held
        missing = [key for key in arrays if (client.id, key) not in held or held[client.id, key].cancelled()]
        if missing:
            by_all = len(missing) == len(arrays)
            sent = held_by_workers(client, "vicinal-data", [arrays[key] for key in missing], by_all=by_all)
            held.update({(client.id, key): future for key, future in zip(missing, sent, strict=True)})
        for digest in arrays:
            held.move_to_end((client.id, digest))
        while len(held) > max(_HELD, len(arrays)):
            held.popitem(last=False)
        return [held[client.id, digest] for digest in arrays]
