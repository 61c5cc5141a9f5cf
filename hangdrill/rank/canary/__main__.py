"""The order of a canary job. The environment is noted before torch is imported: it decides what torch will be.

1. note      the variables that choose a backend, as the process was started with them and as they are now; the rank
             keeps to cores of its own, where there are enough
2. import    torch, timed
3. parts     as --parts names them, in the order of PARTS; each is timed, bounded and recorded by itself
4. recover   the last rank is killed (first attempt only); the second attempt restores, trains and goes on with 5
5. shutdown  the process group is destroyed
"""

import os
import time

from hangdrill.rank.canary.cores import keep_to_own_cores
from hangdrill.rank.canary.lease import end_with_lease
from hangdrill.rank.canary.options import parse_options
from hangdrill.rank.canary.record import Record
from hangdrill.rank.canary.switch import plant_before_import, switch_facts


def main() -> None:
    """Measure what the command line names."""
    end_with_lease(os.environ)
    options = parse_options()
    plant_before_import(options.plants, os.environ)
    record = Record.from_environment(options.out, os.environ)
    record.facts["switch"] = switch_facts(os.environ)
    record.facts["cores"] = keep_to_own_cores(os.environ)
    began_s = time.perf_counter()
    from hangdrill.rank.canary.job import run_job

    record.measures["import_s"] = time.perf_counter() - began_s
    run_job(options, record)


if __name__ == "__main__":
    main()
