"""`python -m vgpusim.image FILE` lists the device code that a program, library or image carries."""

import sys

from .report import main

sys.exit(main())
