"""Bounds on the contributions of skipped pairs, collected over the sweeps of a problem, or of all problems of a fit."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Certificates:
    """The largest bound on what skipped pairs would have added to the sum of any row, relative to the sum."""

    def __init__(self) -> None:
        self.largest = 0.0  # 0 if every pair was visited

    def add(self, certificate: float) -> None:
        """Add the certificate of a sweep."""
        self.largest = max(self.largest, certificate)
        around = _certified.get()
        if around is not None and around is not self:
            around.add(certificate)


# The certificates of all problems of a fit that has several, such as a fit with a search.
_certified: ContextVar[Certificates | None] = ContextVar("vicinal_certified", default=None)


@contextmanager
def certificates_of_fit() -> Iterator[Certificates]:
    """Within this context, the yielded object collects the certificates of all sweeps, whatever problem they belong to."""
    found = Certificates()
    token = _certified.set(found)
    try:
        yield found
    finally:
        _certified.reset(token)
