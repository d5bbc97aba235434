"""References to the components of a density on the workers: whether the active client can use them, and why they are lost."""

from collections.abc import Sequence
from concurrent.futures import CancelledError

from distributed import Client, Future

from vicinal._dask.cluster import active_client, has_client, hold, inside_task

_LATER = "Call gather() before the client is closed or the cluster restarted if a density should outlive them."


def client_of(components: Sequence[Future], n: int) -> Client:
    """Return the active client, through which the components of a density can be used; otherwise raise an error with a remedy.

    Parameters
    ----------
    components : sequence of distributed.Future
    n : int
        The number of components, for the message.
    """
    if inside_task():
        raise RuntimeError(
            f"the {n} components of this density are on the workers of a Dask cluster, and it is used inside a task there, which would "
            "wait for other tasks forever. Call gather() on the estimator before it is passed to the task, or call its methods outside, "
            "with a Dask collection."
        )
    if components[0].client is None:  # unpickled where no client was active
        hold(components)
    own = components[0].client
    if own is None:
        raise RuntimeError(
            f"this density was loaded from a pickle, which holds references to its {n} components and not the components, and there is no "
            "active Dask client. Connect to the cluster where it was fitted (distributed.Client('tcp://host:8786')); if that has ended, "
            f"fit the density again. {_LATER}"
        )
    if own.status in ("closing", "closed"):
        raise RuntimeError(
            f"the {n} components of this density were on the workers of a Dask cluster, whose client has been closed, so they are lost. "
            f"Fit the density again. {_LATER}"
        )
    if any(future.status == "cancelled" for future in components):  # "lost" ones are computed again
        raise _lost(n, "they were released or cancelled")
    if not has_client() or active_client() is not own:
        raise RuntimeError(
            f"the {n} components of this density are on the workers of another Dask client than the active one. Use the client that was "
            f"active in its fit ({own.scheduler.address}): `with client.as_current(): ...`, or fit the density again."
        )
    return own


def needed_here(n: int, name: str) -> RuntimeError:
    """Return the error for an attribute or a method that needs the n components of a density in this process."""
    return RuntimeError(
        f"the {n} components of this density are on the workers of a Dask cluster, where rows are scored; {name} needs them in this "
        "process. Call gather() on the estimator first."
    )


def lost_components(client: Client, components: Sequence[Future], n: int, reason: object) -> RuntimeError:
    """Return the error for a call that failed because workers were lost: can it be repeated, or are the components lost?"""
    keys = [future.key for future in components]
    try:
        states = client.sync(client.scheduler.get_task_status, keys=keys, callback_timeout=5.0)
    except (OSError, TimeoutError, CancelledError, AttributeError):
        states = {}  # the scheduler does not answer
    if all(states.get(key) in ("memory", "waiting", "processing", "queued", "no-worker") for key in keys):
        return RuntimeError(
            f"Dask workers were lost, or accepted no tasks, while they computed with the {n} components of this density ({reason}). The "
            "components are still there, or are made again: repeat the call."
        )
    return _lost(n, reason)


def _lost(n: int, reason: object) -> RuntimeError:
    return RuntimeError(
        f"the {n} components of this density are not on the workers of the active Dask client any more ({reason}): the workers that held "
        f"them have left, the cluster has been restarted, or this is a copy from a pickle that was written with another cluster. Fit the "
        f"density again. {_LATER}"
    )
