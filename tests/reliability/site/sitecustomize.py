"""With this folder on PYTHONPATH, every Python process obeys the plan of faults in its environment."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import faults

faults.install_from_environment()
