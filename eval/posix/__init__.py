"""Public test programs of filesystems, run on a mount and on the plain disk, so that what differs is BaseFS's."""
