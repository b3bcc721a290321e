"""Makes the kernels of the loop IR's tests importable here."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "loops"))
