"""Helpers of the tests on Dask: rows in clusters, and workers that are limited, lost and waited for."""

import time

import numpy as np

from vicinal._engine.dask import cluster as cluster_module

ENOUGH = 2**32  # bytes that a worker may use: far more than it needs


def clustered(n, d, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) + 8.0 * rng.integers(0, 5, size=(n, 1)), rng.integers(0, 3, n)


def wait_until(condition):
    assert any(condition() or time.sleep(0.05) for _ in range(400))


def limit_workers(client, size):
    """Let nannies kill workers that use more than 95 % of a size."""
    for nanny in client.cluster.workers.values():
        nanny.memory_manager.memory_limit = size


def wait_for_two_workers(client):
    """Wait until two workers accept tasks.  A nanny may give up after several kills; both workers are then replaced."""
    limit_workers(client, ENOUGH)
    if not any(len(cluster_module.threads_of_workers(client)) == 2 or time.sleep(0.05) for _ in range(300)):
        client.cluster.scale(0)
        wait_until(lambda: not client.scheduler_info(n_workers=-1)["workers"])
        client.cluster.scale(2)
    client.wait_for_workers(2, timeout=60)
    wait_until(lambda: len(cluster_module.threads_of_workers(client)) == 2)
