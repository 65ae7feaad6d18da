"""`python -m docmill` is the command `docmill`."""

from docmill.cli import main

main()
