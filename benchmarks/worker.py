"""Run one contender in its own process: set it up, warm it up, then time one run for each line on stdin."""

import json
import resource
import sys
import time
import traceback

import numpy as np


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def say(**answer):
    print(json.dumps(answer), file=sys.__stdout__, flush=True)


def main():
    case, name = json.loads(sys.argv[1]), sys.argv[2]
    sys.stdout = sys.stderr  # some libraries print to stdout
    try:
        import contenders

        contenders.data(case)
        run = contenders.CONTENDERS[case["kind"]][name](case)
        before = peak()
        answer = run()
        rows, expected = contenders.truth(case)
        values = answer[0] if case["kind"] == "scatter" else answer
        error = float(np.max(np.abs(np.asarray(values, dtype=float)[rows] - expected)))
        say(ready=True, error=error if np.isfinite(error) else None)
    except ImportError as missing:
        return say(ready=False, why=f"not installed ({missing})")
    except Exception as failure:
        traceback.print_exc()
        return say(ready=False, why=f"{type(failure).__name__}: {failure}"[:200])
    for _ in sys.stdin:
        start = time.perf_counter()
        run()
        say(seconds=time.perf_counter() - start, memory=peak() - before)


if __name__ == "__main__":
    main()
