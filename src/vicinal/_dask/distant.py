"""A density whose components are on the workers of a cluster."""

from typing import Any

from vicinal._dask.cluster import LostError, active_client, answer_of, sent_to_all


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
        client = active_client("a density whose rows are on Dask workers")
        try:
            return answer_of(client, self.future, lambda: "")
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
