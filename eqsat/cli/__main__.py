"""``python -m eqsat.cli`` is the command ``eqsat``."""

import sys

from eqsat.cli import main

sys.exit(main())
