"""`python -m hangdrill` is the command `hangdrill`."""

from hangdrill.cli import main

if __name__ == "__main__":
    main()
