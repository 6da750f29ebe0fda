"""The process of one job; see `runner.main`."""

import sys

from testbed.workloads.runner import main

main(sys.argv[1:])
