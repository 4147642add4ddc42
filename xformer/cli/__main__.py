"""`python -m xformer.cli` is the program `xformer`."""

from xformer.cli import main

main()
