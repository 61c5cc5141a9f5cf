"""`python -m hangdrill.delivery`: the process beside the collector. Its orders come over standard input.

With the word `inspect` it looks once at what was delivered, for the controller of a drill; see `inspection`.
"""

import os
import sys


def main() -> int:
    """The exit code. It leaves without waiting for threads: one may hang on a store for good."""
    if sys.argv[1:] == ["inspect"]:
        from hangdrill.delivery.inspection import answer

        code = answer(os.environ)
    else:
        from hangdrill.delivery.process import serve

        code = serve(os.environ)
    sys.stdout.flush()
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    os._exit(main())
