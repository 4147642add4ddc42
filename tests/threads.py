"""Work in several threads at once; a deadlock ends the process with where each thread stands, rather than never."""

import faulthandler
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

THREADS = 8
LONGEST = 400  # seconds; what is done here takes a few, on a busy machine some tens


def in_threads(function: Callable[[int], Any]) -> list[Any]:
    """function(index) for each thread, all at once."""
    faulthandler.dump_traceback_later(LONGEST, exit=True)
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(function, range(THREADS)))
    finally:
        faulthandler.cancel_dump_traceback_later()
