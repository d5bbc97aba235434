"""A density whose components are on the workers of a cluster."""

from typing import Any

from vicinal._dask.cluster import LostError, active_client, answer_of, hold, only_responding, sent_to_all

_DENSITY = "a density whose rows are on Dask workers"


class DistantMixture:
    """A mixture that is on every worker; new rows are scored there, and `gather` moves it into this process.

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
        """Send a mixture to the workers."""
        future = sent_to_all(active_client(), "vicinal-density", mixture)
        return cls(future, mixture.centres.shape, mixture.engine)

    @property
    def n_features(self) -> int:
        """Number of dimensions."""
        return int(self.shape[1])

    def gather(self) -> Any:
        """Return the mixture itself, in this process."""
        return self._answer(active_client(_DENSITY), self.future)

    def left_out_score_samples(self, passes: int = 1) -> Any:
        """Return the log-density of each centre under the mixture of the *other* components, computed by a worker."""
        client = active_client(_DENSITY)
        return self._answer(
            client, client.submit(_left_out, self.future, None, passes, workers=only_responding(client), pure=False)
        )

    def left_out_scores_of(self, rows: Any) -> Any:
        """Return the log-density of rows, each without the component at the same position, computed by a worker."""
        client = active_client(_DENSITY)
        return self._answer(
            client, client.submit(_left_out, self.future, rows, 1, workers=only_responding(client), pure=False)
        )

    def _answer(self, client: Any, task: Any) -> Any:
        try:
            return answer_of(client, task, lambda: "It holds the whole density.")
        except LostError as error:
            raise RuntimeError(
                f"the {self.shape[0]} components of this density were on Dask workers that have left ({error}). Fit it again."
            ) from None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError(
            f"the {self.shape[0]} components of this density are on the workers of a Dask cluster, where rows are scored; "
            f"{name} needs them in this process. Call gather() on the estimator first."
        )


def _left_out(mixture: Any, rows: Any, passes: int) -> Any:
    return mixture.left_out_score_samples(passes) if rows is None else mixture.left_out_scores_of(rows)
