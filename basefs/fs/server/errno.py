"""The errno of every error of ours: the only place where one becomes the other."""

from __future__ import annotations

import errno

from basefs import errors

#: Nearest class in the method resolution order decides, so a new error inherits what its parent means.
ERRNO: dict[type[errors.BaseFSError], int] = {
    errors.BaseFSError: errno.EIO,
    errors.UsageError: errno.EINVAL,
    errors.PathError: errno.EINVAL,
    errors.NotFound: errno.ENOENT,
    errors.Exists: errno.EEXIST,
    errors.NotADirectory: errno.ENOTDIR,
    errors.IsADirectory: errno.EISDIR,
    errors.NotEmpty: errno.ENOTEMPTY,
    errors.InvalidName: errno.EINVAL,
    errors.NameTooLong: errno.ENAMETOOLONG,
    errors.PermissionDenied: errno.EACCES,
    errors.NotPermitted: errno.EPERM,
    errors.TooManyLinks: errno.EMLINK,
    errors.NoData: errno.ENODATA,
    errors.Unsupported: errno.ENOTSUP,
    errors.TooLarge: errno.EFBIG,
    errors.StoreError: errno.EIO,
    errors.DamagedLog: errno.EIO,
    errors.ReadOnly: errno.EROFS,
    errors.NoSpace: errno.ENOSPC,
    errors.IncompleteContent: errno.EIO,
    errors.UnreadableContent: errno.EIO,
    errors.ArchiveError: errno.EIO,
    errors.ProtocolError: errno.EPROTO,
    errors.RemoteProtocolError: errno.EPROTO,
    errors.InvalidEntry: errno.EIO,
    errors.UnsupportedEntry: errno.EIO,
    errors.LocalProtocolError: errno.EPROTO,
    errors.NetworkError: errno.ENETUNREACH,
    errors.PeerUnreachable: errno.EHOSTUNREACH,
    errors.WrongFilesystem: errno.EHOSTUNREACH,
    errors.AgentError: errno.ENETUNREACH,
    errors.DaemonError: errno.EIO,
    errors.NotRunning: errno.ENOTCONN,
    errors.DaemonGone: errno.ENOTCONN,
    errors.OtherVersion: errno.EIO,
    errors.AlreadyRunning: errno.EBUSY,
    errors.MountFailed: errno.EIO,
}


def errno_of(error: errors.BaseFSError) -> int:
    """The errno with which an operation fails."""
    return next(ERRNO[cls] for cls in type(error).__mro__ if cls in ERRNO)
