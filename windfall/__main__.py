"""`python -m windfall`: the command line."""

import sys

from windfall.commands import main

sys.exit(main())
