"""``python -m eqsat`` is the command ``eqsat``."""

import sys

from eqsat.cli import main

sys.exit(main())
