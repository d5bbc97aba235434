"""Run all of scikit-learn's checks of one estimator in a single test."""

from sklearn.utils.estimator_checks import check_estimator


def check_conventions(estimator, expected_failures=None):
    """Raise the first failure of a check, and fail if a check passes although it is listed as one that fails.

    The default run checks one setting of each estimator with `parametrize_with_checks`, one test per check. The slow tests
    repeat all checks with other settings through this function.
    """
    results = check_estimator(estimator, expected_failed_checks=expected_failures or {}, on_skip=None)
    assert len(results) > 30
    passed = [result["check_name"] for result in results if result["expected_to_fail"] and result["status"] == "passed"]
    assert not passed, f"these checks pass, although failures are expected: {passed}"
