"""One drill: plan it, own its processes, place and release its fault, keep its record, judge it.

`run.py` is the only module that knows the order; everything after `collected` reads the run directory alone.
"""
