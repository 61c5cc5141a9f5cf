"""`phases.py DIRECTORY`: `hangdrill diagnose DIRECTORY` step by step, and one JSON object: who was named, and when each
step began and ended, as time.monotonic() says, which is the same in all processes of a host.
"""

import json
import sys
import time

from hangdrill.cli.output import console
from hangdrill.incident import diagnose_evidence, read_incident
from hangdrill.readers import open_executor
from hangdrill.report.story import BRIEF, tell_story
from hangdrill.report.terminal import print_diagnosis


def main() -> None:
    at_s = [time.monotonic()]
    with open_executor() as each:
        evidence = read_incident([sys.argv[1]], each=each)
    at_s.append(time.monotonic())
    found = diagnose_evidence(evidence)
    at_s.append(time.monotonic())
    print_diagnosis(console(stderr=True), found, story=tell_story(found, evidence.dumps, before=BRIEF))
    at_s.append(time.monotonic())
    names = ("read", "diagnose", "report")
    spans = [[name, began, ended] for name, began, ended in zip(names, at_s, at_s[1:], strict=False)]
    print(json.dumps({"culprits": [culprit.rank for culprit in found.culprits], "phases": spans}))


if __name__ == "__main__":
    main()
