"""The chain file: a chain that is too large for memory, in a file without a name, cut into blocks on demand."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from basefs.log.blocks import SYNC_BLOCK_DATA, Block
from basefs.log.hashes import ZERO_HASH, BlockHash


class ChainFile:
    """A chain's bytes on disk.  `file` is written first; after `seal` there are blocks.

    Attributes:
        file: where the chain's bytes go.
    """

    def __init__(self, directory: Path | None) -> None:
        """Raises OSError."""
        if directory is not None:
            directory.mkdir(mode=0o700, exist_ok=True)
        # It outlives this process in no case.
        self.file: BinaryIO = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115
        self._size = 0
        self._hashes: list[BlockHash] = []

    def seal(self) -> int:
        """End the writing; returns the number of bytes.  Raises OSError."""
        self.file.flush()
        self._size = os.fstat(self.file.fileno()).st_size
        return self._size

    def read(self) -> bytes:
        """All of it.  Raises OSError."""
        return os.pread(self.file.fileno(), self._size, 0)

    def cut(self) -> None:
        """Compute the hashes of the blocks, the last one first: each holds that of the next.  Raises OSError."""
        count = -(-self._size // SYNC_BLOCK_DATA)
        self._hashes = [BlockHash(ZERO_HASH)] * (count + 1)
        for index in range(count - 1, -1, -1):
            self._hashes[index] = self._block(index).hash

    def _block(self, index: int) -> Block:
        data = os.pread(self.file.fileno(), SYNC_BLOCK_DATA, index * SYNC_BLOCK_DATA)
        return Block(self._hashes[index + 1], data)

    @property
    def first(self) -> BlockHash:
        """The hash of the first block."""
        return self._hashes[0]

    def blocks(self) -> Iterator[Block]:
        """All blocks, the first one first, `SYNC_BLOCK_DATA` bytes of data each.  Raises OSError."""
        return (self._block(index) for index in range(len(self._hashes) - 1))

    def close(self) -> None:
        """Release the file."""
        self.file.close()
