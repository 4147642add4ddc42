"""Workers that are watched: a job that takes too long, or kills its worker, is reported and the others go on."""

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

START = 120.0  # seconds that a worker may take to load its libraries

Job = dict[str, Any]


class Worker:
    """A process that does one job at a time. Variables of its `environment` that are None are not set there."""

    def __init__(self, environment: dict[str, str | None], command: Sequence[str] = (sys.executable, "-m", "benchmarks.ahead.worker")):
        self.environment = {name: value for name, value in (os.environ | environment).items() if value is not None}
        self.command = command
        self.process: subprocess.Popen | None = None

    def run(self, job: Job, budget: float) -> dict[str, Any]:
        """The answer to `job`, or {"failed": why not} after `budget` seconds at the most."""
        if self.process is None:
            self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed in `stop`)
            streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.errors}
            self.process = subprocess.Popen(self.command, env=self.environment, text=True, **streams)
            loaded = self._ask(None, START)
            if "failed" in loaded:
                return loaded
        return self._ask(job, budget)

    def kill(self) -> None:
        """End the process, whatever it does, from any thread."""
        process = self.process
        if process is not None:
            process.kill()

    def stop(self) -> None:
        """End the process and forget it; the next job starts another."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            with contextlib.suppress(BrokenPipeError):  # a job that it did not live to read
                self.process.stdin.close()
            self.process.stdout.close()
            self.process = None
            self.errors.close()

    def _ask(self, job, budget):
        expired = threading.Event()
        watchdog = threading.Timer(budget, lambda: (expired.set(), self.process.kill()))
        watchdog.start()
        try:
            if job is not None:
                self.process.stdin.write(json.dumps(job) + "\n")
                self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        finally:
            watchdog.cancel()
        if answer:
            return json.loads(answer)
        reason = f"over the budget of {budget:.0f} s" if expired.is_set() else f"the process ended: {self._last_words()}"
        self.stop()
        return {"failed": reason}

    def _last_words(self) -> str:
        code = self.process.wait()
        self.errors.seek(0)
        lines = self.errors.read().split("\n")
        return next((line.strip()[:200] for line in reversed(lines) if line.strip()), f"exit status {code}")


def serve(answer: Callable[..., dict[str, Any]]) -> None:
    """The other end: answer(**job) for each line of JSON until the input ends.

    The first answer says that all is loaded. What libraries print goes to the error stream.
    """
    answers, sys.stdout = os.fdopen(os.dup(1), "w"), sys.stderr
    os.dup2(2, 1)
    print(json.dumps({}), file=answers, flush=True)
    for line in sys.stdin:
        try:
            found = answer(**json.loads(line))
        except Exception as problem:  # a row of the table, in the library's own words
            found = {"failed": f"{type(problem).__name__}: {(str(problem).splitlines() or [''])[0]}"}
        print(json.dumps(found), file=answers, flush=True)


def run(jobs: Sequence[Job], workers: Sequence[Worker], budget: float, limit: float) -> Iterator[tuple[Job, dict[str, Any]]]:
    """Each job with its answer, as they come. A job that could not begin within `limit` seconds is answered with that."""
    waiting: queue.SimpleQueue = queue.SimpleQueue()
    done: queue.SimpleQueue = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    end = time.monotonic() + limit

    def work(worker):
        while True:
            try:
                job = waiting.get_nowait()
            except queue.Empty:
                return
            begins = time.monotonic() < end
            done.put((job, worker.run(job, budget) if begins else {"failed": f"not begun within {limit:.0f} s"}))

    threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in workers]
    try:
        for thread in threads:
            thread.start()
        for _ in jobs:
            yield done.get()
    finally:  # also when whoever asked has had enough
        with contextlib.suppress(queue.Empty):
            while waiting.get_nowait():
                pass
        for worker, thread in zip(workers, threads, strict=True):
            worker.kill()
            thread.join()
            worker.stop()
