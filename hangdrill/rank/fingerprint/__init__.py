"""What a stack is made of, read inside its own Python: standard library alone, Python 3.10 or newer.

The controller sends the sources of this folder through standard input (`hangdrill.certify.fingerprints`), so nothing is
installed in the stack and nothing has to be visible to it: the Python may be in a container or on another host.
`main.py` knows the order and survives a torch that is missing, does not import, crashes or hangs.
"""
