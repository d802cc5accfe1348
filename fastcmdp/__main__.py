"""`python -m fastcmdp`: the command line."""

import sys

from fastcmdp.cli import main

if __name__ == "__main__":
    sys.exit(main())
