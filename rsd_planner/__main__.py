"""`python -m rsd_planner`: the command line."""

from rsd_planner.cli import main

main()
