"""The filesystem: the live tree plus what was changed here, in domain terms (docs/architecture.md).

Close-to-open: a successful close or fsync is visible to every later open on this node at once, and published soon.  All
who have a file open here share what is written to it here; who has it open when another node changes it, or when its
name is given to another file, keeps the version that they opened.  Nothing here knows FUSE; `operations` translates.
Used by one thread, while the publisher uses the same working set.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from basefs.errors import BaseFSError, NoSpace, StoreError
from basefs.fs.files import Files
from basefs.fs.fuse.mirror import Mirror
from basefs.fs.machine import THIS_MACHINE, Machine
from basefs.fs.metadata import Metadata
from basefs.fs.namespace import Namespace
from basefs.fs.owners import Owners
from basefs.fs.publish.publisher import Publisher
from basefs.fs.staging.scratch import ScratchNames
from basefs.fs.staging.workingset import WorkingSet
from basefs.replica.replica import Replica

log = logging.getLogger(__name__)


class Filesystem:
    """The operations that applications use, on paths as tuples of names.

    Attributes:
        files: the operations on open files.
        namespace: the operations on names.
        metadata: the operations on attributes.
        working: what was changed here and is not published.
        publisher: publishes it.
        mirror: shows the changes of other nodes to watchers on the mount, if there is one.
    """

    def __init__(
        self,
        replica: Replica,
        owners: Owners,
        clock: Callable[[], float],
        quiet: float,
        scratch: ScratchNames | None = None,
        machine: Machine = THIS_MACHINE,
    ) -> None:
        """The filesystem of one replica.

        Args:
            replica: whose live tree it shows.
            owners: of what has none.
            clock: UNIX seconds.
            quiet: seconds without a change after which what was saved is published.
            scratch: the names that never leave this node.
            machine: time and timers.

        Raises:
            StoreError: what an earlier process left cannot be read.
        """
        self.working = WorkingSet(replica, owners, clock, scratch, machine)
        self.publisher = Publisher(self.working, quiet)
        self.files = Files(self.working, self.publisher)
        self.namespace = Namespace(self.working, self.publisher)
        self.metadata = Metadata(self.working)
        self.mirror: Mirror | None = None

    def start(self) -> None:
        """Publish from now on without being asked."""
        self.publisher.start()

    def close(self) -> None:
        """Publish what can be published, and make the rest durable.  Raises `StoreError`."""
        try:
            self.publisher.stop()
        finally:
            self.working.close()

    def publish(self, *, patient: bool = False) -> None:
        """Publish now what can be published; where the log cannot be written it stays pending.  See `Publisher`."""
        try:
            self.publisher.publish(patient=patient)
        except StoreError as error:
            log.error("cannot publish, retrying: %s", error)

    def failed(self, error: BaseFSError) -> None:
        """An application got this error: what it wrote may not have fitted."""
        if isinstance(error, NoSpace):
            self.working.replica.room.ran_out()

    def unpublished(self) -> int:
        """How many names wait for being published; scratch names never do."""
        return self.working.unpublished()

    @property
    def is_durable(self) -> bool:
        """Whether `keep_durable` has nothing to do; what changes at this moment may not count yet."""
        return self.working.is_durable and not (self.mirror is not None and self.mirror.needs_check)

    def keep_durable(self) -> None:
        """Make what is pending and published survive a power cut; call it every 100 ms unless `is_durable`.

        Raises `StoreError`.
        """
        if self.mirror is not None:
            self.mirror.check()
        self.working.sync()
