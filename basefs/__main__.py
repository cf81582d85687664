"""`python -m basefs`: the command, also for a daemon in the background."""

import os
import sys

if not getattr(sys.flags, "safe_path", False):
    # Modules in the current directory must not be imported.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from basefs.management.main import main

if __name__ == "__main__":
    main()
