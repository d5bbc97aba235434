"""The placeholder for the density of a metric whose training rows were not saved."""

from typing import NoReturn

from sklearn.exceptions import NotFittedError


class RowsLeftOut:
    """A placeholder for a density whose rows were not saved: every use raises an error that states the reason."""

    def __init__(self, owner: str) -> None:
        self.owner = owner

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotFittedError(
            f"this {self.__dict__.get('owner', 'estimator')} was saved without its training rows "
            "(training_rows=False). It can transform rows and compute distances, but it has no density. Fit it "
            "again, or save it with training_rows=True."
        )
