#!/usr/bin/env bash
# scripts/histories.sh [-seed=N] [-duration=5m] [-topology=standalone]  records what processes of every client do to a cache
# while faults happen, and checks it. With LEASECACHE_MUTANT=NAME, of tests/mutants/catalogue_test.go, they run with that
# mutant, and what they do must be found wrong; LEASECACHE_MUTANT=all takes those that histories are known to find.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

cd tests
if [[ -n ${LEASECACHE_MUTANT:-} ]]; then
	exec go test -count=1 -v -timeout=40m -tags=mutants -run='^TestHistoriesFindMutants$' ./mutants
fi
exec go test -count=1 -v -timeout=40m -run='^TestHistories$' ./histories -args -all -duration=5m -operations=1000000 "$@"
