"""Would this environment leave evidence? Facts are gathered without changing anything, then judged by pure rules.

`gather` looks (environment, scenario or command, script, host, torch) and returns one frozen `Surroundings`; each
module of rules turns that into findings; `examine` runs them all. No job is started, and no file is written.
"""

from hangdrill.preflight.catalogue import CATALOGUE
from hangdrill.preflight.delivery import known_delivery
from hangdrill.preflight.examine import examine
from hangdrill.preflight.gather import Wishes, gather
from hangdrill.preflight.surroundings import Surroundings

__all__ = ["CATALOGUE", "Surroundings", "Wishes", "examine", "gather", "known_delivery"]
