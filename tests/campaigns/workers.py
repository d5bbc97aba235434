"""Processes that try the cases of one campaign in parallel (``--jobs``).

A worker reads the number of a case from its standard input and answers with a line of JSON. If a worker dies or does not
answer in time, its case is bad, and another worker takes its place.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

GRACE = 20.0  # seconds that running cases have after the end of ``--seconds``
LONG = 300.0  # a case that is stopped after this many seconds is bad; one that is stopped earlier is only left out


def command(name: str, arguments: list[str]) -> list[str]:
    """Return the command that starts a worker of a campaign."""
    return [sys.executable, str(Path(__file__).parent), name, *arguments, "--worker"]


def serve(try_case: Callable[[int], dict], summary: Callable[[], str]) -> int:
    """Try the cases whose numbers arrive until there are no more; the output of a case is sent to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps(try_case(int(line))), file=answers, flush=True)
    print(json.dumps({"summary": summary()}), file=answers, flush=True)
    return 0


def try_all(
    worker: list[str], numbers: range, jobs: int, seconds: float, take: Callable[[int, dict], None]
) -> list[str]:
    """Distribute the numbers among the workers and pass each answer to ``take``; return the summaries of the workers."""
    pool = _Pool(worker, iter(numbers), time.monotonic() + seconds, take)
    threads = [threading.Thread(target=pool.feed, daemon=True) for _ in range(min(jobs, len(numbers)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(pool.end + GRACE - time.monotonic(), 0.0) if seconds < float("inf") else None)
    pool.kill()
    for thread in threads:
        thread.join()
    return pool.summaries


class _Pool:
    def __init__(
        self, worker: list[str], numbers: Iterator[int], end: float, take: Callable[[int, dict], None]
    ) -> None:
        self.worker, self.numbers, self.end, self.take = worker, numbers, end, take
        self.lock = threading.Lock()
        self.running: set[subprocess.Popen] = set()
        self.summaries: list[str] = []
        self.over = False

    def feed(self) -> None:
        """Keep one worker busy."""
        process = None
        while (number := self._next()) is not None:
            process = process or self._begin()
            began = time.monotonic()
            answer = _exchange(process, str(number))
            if answer is None:
                answer = self._why(self._end(process), time.monotonic() - began)
                process = None
            with self.lock:
                self.take(number, answer)
        if process is not None:
            answer = _exchange(process, None)
            if answer is not None:
                self.summaries.append(answer["summary"])
            self._end(process)

    def _why(self, code: int, seconds: float) -> dict:
        if not self.over:
            return {"what": "?", "error": f"the case ended its process with {code}"}
        if seconds > LONG:
            return {"what": "?", "error": f"the case did not end in {seconds:.0f} seconds"}
        return {"what": "?", "left out": "the time was over"}

    def kill(self) -> None:
        """End the workers that are still busy."""
        with self.lock:
            self.over = True
            for process in self.running:
                process.kill()

    def _next(self) -> int | None:
        with self.lock:
            return next(self.numbers, None) if time.monotonic() < self.end and not self.over else None

    def _begin(self) -> subprocess.Popen:
        process = subprocess.Popen(self.worker, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        with self.lock:
            self.running.add(process)
            if self.over:
                process.kill()
        return process

    def _end(self, process: subprocess.Popen) -> int:
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        code = process.wait()
        with self.lock:
            self.running.discard(process)
        return code


def _exchange(process: subprocess.Popen, line: str | None) -> dict | None:
    """Return the answer to a line, or to the end of all lines; None if the worker has ended."""
    try:
        if line is None:
            process.stdin.close()
        else:
            print(line, file=process.stdin, flush=True)
    except BrokenPipeError:
        return None
    answer = process.stdout.readline()
    return json.loads(answer) if answer else None
