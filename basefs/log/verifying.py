"""Many signatures at once.

The library that verifies lets other threads work meanwhile, so several of them use as many cores.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain

from basefs.errors import InvalidEntry
from basefs.log.entries import Entry
from basefs.log.keys import verify

#: An entry, and the raw public key that it names; `None`: it cannot be verified yet.
Signed = tuple[Entry, bytes | None]

#: Signatures for which a thread more is worth it, 7 ms of work.
_A_THREAD = 64
#: Threads at the most: the rest of the node wants to work as well.
_MOST = 4

#: It starts its threads when they are first needed, and keeps them.
_pool = ThreadPoolExecutor(_MOST - 1, thread_name_prefix="verify")


def find_wrong(
    signed: Sequence[Signed], root: Entry | None = None, *, cores: int | None = None
) -> list[InvalidEntry | None]:
    """The error of each of these signatures; `None`: valid, or not verified here.

    `root`: as for `verify`; `cores`: to be used, `None`: those that this process may run on.
    """
    threads = min(_MOST, len(signed) // _A_THREAD)
    if threads < 2:
        return _one_by_one(signed, root)
    threads = min(threads, cores or len(os.sched_getaffinity(0)))
    size = -(-len(signed) // threads)
    shares = [signed[start : start + size] for start in range(0, len(signed), size)]
    others = _pool.map(partial(_one_by_one, root=root), shares[1:])
    return list(chain(_one_by_one(shares[0], root), *others))


def _one_by_one(signed: Sequence[Signed], root: Entry | None) -> list[InvalidEntry | None]:
    return [None if public is None else _wrong(entry, public, root) for entry, public in signed]


def _wrong(entry: Entry, public: bytes, root: Entry | None) -> InvalidEntry | None:
    try:
        verify(entry, public, root)
    except InvalidEntry as error:
        return error
    return None
