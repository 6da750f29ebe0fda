#!/bin/bash
# All tests, in some 10 minutes on two cores. Those of the kernel's part, and those that watch short spans of time, wait most of
# theirs: they go first, one after another, and all else (idle to the scheduler) takes what they leave of the processors.
# What fails of the first then has the machine to itself once more, and both outputs are there: only a second failure counts.
# Usage: tests/all.sh [SUDO]
set -m # each part is a process group of its own, which an interrupt ends whole
cd "$(dirname "$0")/.." || exit 2
sudo=$1 bin=$PWD/.venv/bin said=$PWD/.venv/shared-tests.txt
first_in_line() {
    $sudo env CI="$CI" "$bin/python" -m pytest --first-in-line -o cache_dir=.pytest_cache/alone -m '(kernel or alone) and not long' "$@" </dev/null
}
ends() { # of all parts
    trap '' INT TERM HUP
    for part in $(jobs -p); do $sudo kill -INT -- "-$part"; done
    wait
    exit 130
}

$sudo true # asks for a password before there are two that might
trap ends INT TERM HUP
chrt --idle 0 bash -ec "
    make native-code QUICKLY=--quickly
    $sudo env CI=$CI $bin/python -m pytest -n auto --dist loadfile -m 'not (kernel or alone or long)'
" >"$said" 2>&1 </dev/null &
shared=$!
first_in_line &
wait $!
alone=$?
if [ $alone -gt 1 ]; then # interrupted, or not begun
    ends
fi
wait $shared
status=$?
cat "$said"
if [ $alone -eq 1 ]; then
    first_in_line --last-failed &
    wait $!
    alone=$?
fi
[ $alone -eq 0 ] && [ $status -eq 0 ]
