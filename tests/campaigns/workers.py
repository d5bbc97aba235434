"""Processes that try the cases of one campaign, several in parallel with ``--jobs``.

A worker reads the number of a case from its standard input and answers with a line of JSON. If a worker dies or does not
answer in time, its case is bad, and another worker takes its place.
"""

import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

GRACE = 20.0  # seconds that running cases have after the end of ``--seconds``
LONG = 300.0  # a case that takes this many seconds is stopped and bad, unless its campaign allows more


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
    worker: list[str],
    numbers: range,
    jobs: int,
    seconds: float,
    take: Callable[[int, dict], None],
    longest: float | None = None,
    untimed: int = 1,
) -> list[str]:
    """Distribute the numbers among the workers and pass each answer to ``take``; return the summaries of the workers.

    The `seconds` begin when the first `untimed` cases have been answered: these are always tried, and include imports and
    compilation. A case that takes more than `longest` seconds is stopped. A case that is still running when the time is over
    is left out.
    """
    pool = _Pool(worker, iter(numbers), seconds, take, LONG if longest is None else longest, untimed)
    threads = [threading.Thread(target=pool.feed, daemon=True) for _ in range(min(jobs, len(numbers)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive() and time.monotonic() < pool.end + GRACE:
            thread.join(0.1)
    pool.kill()
    for thread in threads:
        thread.join()
    return pool.summaries


class _Watch(threading.Thread):
    """Kills a worker whose case takes too long.

    Only ticks of this thread are counted, so that time in which the whole campaign is suspended does not count.
    """

    def __init__(self, process: subprocess.Popen, longest: float) -> None:
        super().__init__(daemon=True)
        self.process, self.ticks, self.tick = process, math.ceil(longest), min(longest, 1.0)
        self.done, self.stopped = threading.Event(), False

    def run(self) -> None:
        """Wait until the case is done or the time is over."""
        if not any(self.done.wait(self.tick) for _ in range(self.ticks)):
            self.stopped = True
            self.process.kill()


class _Pool:
    def __init__(
        self,
        worker: list[str],
        numbers: Iterator[int],
        seconds: float,
        take: Callable[[int, dict], None],
        longest: float,
        untimed: int,
    ) -> None:
        self.worker, self.numbers, self.seconds, self.take, self.longest = worker, numbers, seconds, take, longest
        self.untimed, self.end = untimed, math.inf  # the end is known when the untimed cases have been answered
        self.lock = threading.Lock()
        self.running: set[subprocess.Popen] = set()
        self.summaries: list[str] = []
        self.over = False

    def feed(self) -> None:
        """Keep one worker busy."""
        process = None
        while (number := self._next()) is not None:
            process = process or self._begin()
            watch = _Watch(process, self.longest)
            watch.start()
            answer = _exchange(process, str(number))
            watch.done.set()
            if answer is None:
                answer = self._why(number, self._end(process), watch.stopped)
                process = None
            with self.lock:
                self.take(number, answer)
                self.untimed -= 1
                if self.untimed == 0:
                    self.end = time.monotonic() + self.seconds
        if process is not None:
            answer = _exchange(process, None)
            if answer is not None:
                self.summaries.append(answer["summary"])
            self._end(process)

    def _why(self, number: int, code: int, stopped: bool) -> dict:
        again = f"try it again with --start {number} --cases 1"
        if stopped:
            return {"what": "?", "error": f"the case did not end in {self.longest:.0f} seconds; {again}"}
        if self.over:
            return {"what": "?", "left out": "the time was over"}
        return {"what": "?", "error": f"the case ended its process with {code}; {again}"}

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
