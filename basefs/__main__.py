"""`python -m basefs` is the `basefs` command."""

from basefs.management.main import main

if __name__ == "__main__":
    main()
