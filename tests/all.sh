#!/bin/sh
# All tests, in a quarter of an hour on two cores. Those of the kernel's part, and those that watch short spans of time, wait
# most of theirs: they go first, one after another, and all else (idle to the scheduler) takes what they leave of the
# processors. What fails of the first then has the machine to itself once more: only a second failure counts.
# Usage: tests/all.sh [SUDO]
cd "$(dirname "$0")/.." || exit 2
sudo=$1 bin=$PWD/.venv/bin said=$PWD/.venv/shared-tests.txt

chrt --idle 0 sh -ec "
    make lint native-code QUICKLY=--quickly
    $sudo env CI=$CI $bin/python -m pytest -n auto --dist loadfile -m 'not (kernel or alone or long)'
" >"$said" 2>&1 &
shared=$!
trap 'kill $shared; exit 130' INT TERM HUP
$sudo env CI="$CI" "$bin/python" -m pytest -o cache_dir=.pytest_cache/alone -m '(kernel or alone) and not long'
alone=$?
wait $shared
status=$?
cat "$said"
if [ $alone -eq 1 ]; then
    $sudo env CI="$CI" "$bin/python" -m pytest -o cache_dir=.pytest_cache/alone --last-failed
    alone=$?
fi
[ $alone -eq 0 ] && [ $status -eq 0 ]
