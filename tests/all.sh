#!/bin/bash
# Run the tests that a mark expression selects: all.sh MARKS [SUDO].
# Tests marked `kernel` or `alone` run one after another in the foreground. Those marked `apart` do so beside them, in namespaces where
# only they have campuses; the others run beside both, in one process a core, at idle priority. A failure is a failure: nothing is
# tried again.
set -m # each part is a process group of its own, which an interrupt ends whole
cd "$(dirname "$0")/.." || exit 2
marks=$1 sudo=$2 python=$PWD/.venv/bin/python logs=$PWD/.venv
run() { $sudo env CI="$CI" $within "$python" -m pytest --durations=30 --durations-min=1 "$@" </dev/null; }
interrupted() {
    trap '' INT TERM HUP
    for part in $(jobs -p); do $sudo kill -INT -- "-$part"; done
    wait
    exit 130
}
none_is_fine() { [ "$1" -eq 0 ] || [ "$1" -eq 5 ]; } # 5: no test was selected

# those that have such tests (tests/conftest.py checks that none is missing): others would only be imported
files=$(grep -lE 'mark\.(kernel|alone)|^from tests\.(emulation_campuses|live_campus) import' tests/test_*.py)

$sudo true # asks for a password before there are two that might
trap interrupted INT TERM HUP
export -f run
export sudo python within
chrt --idle 0 bash -c 'run -n auto --dist loadfile -m "not (kernel or alone) and ($1)"' - "$marks" >"$logs/shared-tests.txt" 2>&1 &
shared=$!
within=$($sudo tests/apart.sh true && echo tests/apart.sh) run -o cache_dir=.pytest_cache/apart -m "apart and ($marks)" $files >"$logs/apart-tests.txt" 2>&1 &
apart=$!
run -o cache_dir=.pytest_cache/serial -m "(kernel or alone) and not apart and ($marks)" $files &
wait $!
serial=$?
[ $serial -eq 2 ] && interrupted # by Ctrl-C
wait $apart
beside=$?
wait $shared
parallel=$?
cat "$logs/apart-tests.txt" "$logs/shared-tests.txt"
none_is_fine $serial && none_is_fine $beside && none_is_fine $parallel
