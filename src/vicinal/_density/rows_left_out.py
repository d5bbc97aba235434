"""What stands in a metric for its density when its training rows were not kept or not saved."""

from sklearn.exceptions import NotFittedError


class RowsLeftOut:
    """Stands for a density whose rows were not kept: whatever is asked of it is an error that says so."""

    def __init__(self, owner):
        self.owner = owner

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotFittedError(
            f"this {self.__dict__.get('owner', 'estimator')} was fitted with Engine(keep='metric') or saved without its "
            "training rows (training_rows=False): it transforms and measures distances, but its density is gone. Fit it "
            "again, or save it with training_rows=True."
        )
