"""The checkout's own pytest set-up: `pytest scenarios/` and the tests work without hangdrill being installed.

When it is installed, its entry point has loaded the plugin already, and a second registration would be an error.
"""

import os
import signal
from importlib.metadata import entry_points

PLUGIN = "hangdrill.pytest_plugin"

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # `make test &` in a script; what the tests start inherits it
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_loaded_by_entry_point() -> bool:
    off = os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    return not off and any(point.value == PLUGIN for point in entry_points(group="pytest11"))


pytest_plugins = ["pytester", *([] if _is_loaded_by_entry_point() else [PLUGIN])]
