"""python -m lucebox: the command line."""

from lucebox.cli.app import main

main()
