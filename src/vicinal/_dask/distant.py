"""A density whose components are on the workers of a cluster as one object."""

import pickle
from typing import Any

import dask
from distributed import Client

from vicinal._dask.cluster import (
    LostError,
    active_client,
    answer_of,
    hold,
    new_key,
    only_responding,
    sent_to_all,
    wait_for_a_worker,
)
from vicinal._dask.references import client_of, lost_components, needed_here

_MOST_BYTES = 2**27  # the size up to which the scheduler keeps a copy


class DistantMixture:
    """A mixture on the workers, which fetch it from each other; new rows are scored there, and `gather` moves it into this process.

    Parameters
    ----------
    future : distributed.Future
        The mixture.
    shape : tuple of int
        The number of components and of features.
    engine : None, str or Engine
    """

    is_distant = True

    def __init__(self, future: Any, shape: tuple[int, int], engine: Any) -> None:
        self.future, self.shape, self.engine = future, shape, engine

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        hold([self.future])

    @classmethod
    def of(cls, mixture: Any) -> "DistantMixture":
        """Send a mixture to the workers.

        Dask soon reduces the copies of any object to one, which is lost with its worker.  The mixture is therefore the result of a
        task whose argument, the mixture as bytes, the scheduler keeps: if it is lost, another worker makes it again.
        """
        client, code = active_client(), pickle.dumps(mixture)
        if len(code) > _MOST_BYTES:
            future = sent_to_all(client, "vicinal-density", mixture)
        else:
            wait_for_a_worker(client)
            workers = only_responding(client)
            with dask.config.set({"distributed.admin.large-graph-warning-threshold": 2 * _MOST_BYTES}):
                future = client.submit(
                    pickle.loads,
                    code,
                    key=new_key("vicinal-density"),
                    workers=workers,
                    allow_other_workers=workers is not None,  # when it is made again
                    pure=False,
                )
        return cls(future, mixture.centres.shape, mixture.engine)

    @property
    def n_features(self) -> int:
        """Number of dimensions."""
        return int(self.shape[1])

    def client(self) -> Client:
        """Return the active client, through which the mixture can be used; otherwise raise an error with a remedy."""
        return client_of([self.future], self.shape[0])

    def lost(self, client: Client, reason: object) -> RuntimeError:
        """Return the error for a call that failed because workers were lost."""
        return lost_components(client, [self.future], self.shape[0], reason)

    def gather(self) -> Any:
        """Return the mixture itself, in this process."""
        client = self.client()
        # The wait for a future that the scheduler does not know would never end; a task that needs it is cancelled.
        return self._answer(client, client.submit(same, self.future, workers=only_responding(client), pure=False))

    def left_out_score_samples(self, passes: int = 1) -> Any:
        """Return the log-density of each centre under the mixture of the *other* components, computed by a worker."""
        client = self.client()
        return self._answer(
            client, client.submit(_left_out, self.future, None, passes, workers=only_responding(client), pure=False)
        )

    def left_out_scores_of(self, rows: Any) -> Any:
        """Return the log-density of rows, each without the component at the same position, computed by a worker."""
        client = self.client()
        return self._answer(
            client, client.submit(_left_out, self.future, rows, 1, workers=only_responding(client), pure=False)
        )

    def _answer(self, client: Any, task: Any) -> Any:
        try:
            return answer_of(client, task, lambda: "It holds the whole density.")
        except LostError as error:
            raise self.lost(client, error) from None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise needed_here(self.shape[0], name)


def same(thing: Any) -> Any:
    """Return an object, as the result of a task."""
    return thing


def _left_out(mixture: Any, rows: Any, passes: int) -> Any:
    return mixture.left_out_score_samples(passes) if rows is None else mixture.left_out_scores_of(rows)
