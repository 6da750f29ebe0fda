#!/bin/bash
# Run the tests that a mark expression selects: all.sh MARKS [SUDO].
# Tests marked `kernel` or `alone` run one after another in the foreground; the others run beside them, in one process a core, at idle
# priority. A failure is a failure: nothing is tried again.
set -m # each part is a process group of its own, which an interrupt ends whole
cd "$(dirname "$0")/.." || exit 2
marks=$1 sudo=$2 python=$PWD/.venv/bin/python log=$PWD/.venv/shared-tests.txt
run() { $sudo env CI="$CI" "$python" -m pytest --durations=30 --durations-min=1 "$@" </dev/null; }
interrupted() {
    trap '' INT TERM HUP
    for part in $(jobs -p); do $sudo kill -INT -- "-$part"; done
    wait
    exit 130
}
none_is_fine() { [ "$1" -eq 0 ] || [ "$1" -eq 5 ]; } # 5: no test was selected

$sudo true # asks for a password before there are two that might
trap interrupted INT TERM HUP
export -f run
export sudo python
chrt --idle 0 bash -c 'run -n auto --dist loadfile -m "not (kernel or alone) and ($1)"' - "$marks" >"$log" 2>&1 &
shared=$!
run -o cache_dir=.pytest_cache/serial -m "(kernel or alone) and ($marks)" &
wait $!
serial=$?
[ $serial -eq 2 ] && interrupted # by Ctrl-C
wait $shared
parallel=$?
cat "$log"
none_is_fine $serial && none_is_fine $parallel
