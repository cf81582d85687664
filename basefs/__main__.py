"""`python -m basefs`, and what starts a daemon in the background."""

import os
import sys

if not getattr(sys.flags, "safe_path", False):
    # Whatever lies in the directory in which somebody runs this is not to be imported.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from basefs.management.main import main

if __name__ == "__main__":
    main()
