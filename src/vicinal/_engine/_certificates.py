"""What skipped pairs may have left out, gathered over the sweeps of a problem, or of all problems of a fit."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Certificates:
    """The largest bound on what skipped pairs would have added to the sum of any row, relative to the sum."""

    def __init__(self) -> None:
        self.largest = 0.0  # where every pair was visited

    def add(self, certificate: float) -> None:
        """Take in the certificate of a sweep."""
        self.largest = max(self.largest, certificate)
        around = _certified.get()
        if around is not None and around is not self:
            around.add(certificate)


# The certificates of all problems of a fit that makes several, as those of a search do.
_certified: ContextVar[Certificates | None] = ContextVar("vicinal_certified", default=None)


@contextmanager
def certificates_of_fit() -> Iterator[Certificates]:
    """Inside, the certificates of all sweeps are taken in by what this yields, whatever problem they belong to."""
    found = Certificates()
    token = _certified.set(found)
    try:
        yield found
    finally:
        _certified.reset(token)
