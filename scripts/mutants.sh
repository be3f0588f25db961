#!/usr/bin/env bash
# scripts/mutants.sh [drivers|scripts|histories]  shows that the tests can fail; without an argument, all, but only a few in histories
#
# drivers  runs the conformance suite on drivers with one fault each, and expects the case of the broken rule to fail.
# scripts  removes every condition of the scripts, and every check of the core that a guarantee rests on, one at a time,
#          and expects a named test to turn red.
# histories  runs some of those in processes whose histories are checked, and expects a violation.
#
# Each prints the table of who caught what; a survivor fails it.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

run() {
	# -v, or a run that passes would not print the table.
	go test -v -count=1 -timeout=40m -tags=mutants "$@" | grep -vE "^(=== |[[:space:]]+--- PASS)"
}

cd tests
case ${1:-all} in
drivers) run -race -parallel=2 ./drivermutants ;; # some faults only the race detector sees every time
scripts) run -parallel=6 -run='^TestNoMutantSurvives$' ./mutants ;; # they wait more than they work
histories) run -run='^TestHistoriesFindMutants$' ./mutants ;;
all)
	failed=0
	run -race -parallel=2 ./drivermutants || failed=1
	run -parallel=6 -short ./mutants || failed=1 # a few in histories
	exit "$failed"
	;;
*)
	printf 'mutants.sh: "%s" is no kind of mutants: want drivers, scripts, histories or nothing\n' "$1" >&2
	exit 2
	;;
esac
