"""Workers that are watched: a cell that takes too long, or kills its worker, is reported and the others go on."""

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

START = 120.0  # seconds that a worker may take to load its libraries

Job = dict[str, Any]


class Worker:
    """A process that compiles one job at a time."""

    def __init__(self, environment: dict[str, str], command: Sequence[str] = (sys.executable, "-m", "benchmarks.ahead.worker")):
        self.environment, self.command = os.environ | environment, command
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
        reason = f"over the budget of {budget:.0f} s" if expired.is_set() else f"the compiler ended: {self._last_words()}"
        self.stop()
        return {"failed": reason}

    def _last_words(self) -> str:
        code = self.process.wait()
        self.errors.seek(0)
        lines = self.errors.read().split("\n")
        return next((line.strip()[:200] for line in reversed(lines) if line.strip()), f"exit status {code}")


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
