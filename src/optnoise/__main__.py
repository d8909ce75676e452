"""``python -m optnoise`` is the command ``optnoise``."""

from optnoise.cli import main

main()
