#!/usr/bin/env bash
# scripts/histories.sh [FLAG...]              records what processes of every client do to a cache while faults happen, and checks it
# scripts/histories.sh reliability [FLAG...]  lets each fault happen once, and writes what was seen into docs/reliability.md
# scripts/histories.sh soak [FLAG...]         goes on for half an hour, and compares what processes use
#
# The flags are those of tests/histories, such as -seed=N, -topology=cluster, -duration=5m, -fault=NAME and -soak=2h. With
# LEASECACHE_MUTANT=NAME, of tests/mutants/catalogue_test.go, histories are of processes with that mutant, and must be found
# wrong; LEASECACHE_MUTANT=all takes those that histories are known to find.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

cd tests
run() { exec go test -count=1 -v -timeout=3h "$@"; }
case ${1:-} in
reliability) run -run='^TestReliability$' ./histories -args -all -update "${@:2}" ;;
soak) run -run='^TestSoak$' ./histories -args -soak=30m -keys=200000 -faulteach=1m "${@:2}" ;;
*)
	[[ -z ${LEASECACHE_MUTANT:-} ]] || run -tags=mutants -run='^TestHistoriesFindMutants$' ./mutants
	run -run='^TestHistories$' ./histories -args -all -duration=5m -operations=1000000 "$@"
	;;
esac
