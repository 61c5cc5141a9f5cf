"""The report is tested with the records of the checks' tests, so that both rooms agree on one drill."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "checks"))
