"""Share the blocks of an interior-point iteration among threads."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

# Below this many multiplications an iteration is over before a second thread has woken up.
_WORTH_SHARING = 2e7


def processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Lanes:
    """A few threads, each with a fixed share of the blocks, so that results do not depend on luck.

    Parameters
    ----------
    threads : int
        How many threads at most; the calling thread is one of them.
    """

    def __init__(self, threads: int | None = None):
        self.threads = threads or processors()
        self._executor = ThreadPoolExecutor(self.threads - 1) if self.threads > 1 else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._executor:
            self._executor.shutdown()

    def shares(self, blocks: int, states: int) -> list[tuple[int, int]]:
        """Cut ``range(blocks)`` into one range a thread, or into one where work is scarce."""
        worth = 1 + int(blocks * float(states) ** 3 / _WORTH_SHARING)
        count = max(1, min(self.threads, blocks, worth))
        return [(blocks * k // count, blocks * (k + 1) // count) for k in range(count)]

    def run(self, task, shares) -> list:
        """Return ``[task(k, lo, hi) for k, (lo, hi) in enumerate(shares)]``, run side by side."""
        others = [self._executor.submit(task, k, *share) for k, share in enumerate(shares) if k]
        return [task(0, *shares[0])] + [other.result() for other in others]
