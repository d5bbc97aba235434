"""What a test needs beyond the extra ``test``."""

import pytest


def needs(*modules):
    """Skip this test, or this file, unless these modules can be imported. Return them: one module, or a tuple.

    A test that uses a package which the extra ``test`` does not install calls this first. ``.ci/run`` runs the README's commands
    before it installs such packages, and runs the skipped tests again afterwards.
    """
    imported = tuple(pytest.importorskip(name, reason=f"needs {name}") for name in modules)
    return imported[0] if len(imported) == 1 else imported
