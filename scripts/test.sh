#!/usr/bin/env bash
# scripts/test.sh        everything: prerequisites, images, lint, the tests of all modules on all servers, the mutants
# scripts/test.sh quick  what daily work needs: the root, each adapter by itself, and the suite with goredis on a real server
# scripts/test.sh matrix the conformance suite alone, in every cell of the matrix: see tests/matrix_test.go
#
# Ends with one line for each cell of the matrix that the conformance suite ran in, the time that it took, and one for
# each that cannot exist. The tests append those lines to the file that LEASECACHE_REPORT names.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

mode=${1:-full}
case $mode in
full)
	images=() flags=() timeout=20m limit=1h
	dirs=$(modules released internal)
	cells='^TestMatrix$' expect='^cell: redigo '
	;;
quick)
	images=(valkey-9) flags=(-short) timeout=3m limit=3m
	dirs=$(modules released internal | grep -E '^(\.|adapters/.*)$')
	cells='^TestMatrix$/^valkey-9$/^standalone$/^goredis$/^resp3$' expect='^cell: goredis resp3 on valkey-9'
	;;
matrix)
	images=() flags=() limit=2h
	dirs=
	cells='^(TestMatrix|TestEveryCellThatIsMissingSaysWhy)$' expect='^cell: redigo '
	export LEASECACHE_MATRIX=full
	;;
*)
	printf 'test.sh: "%s" is not a mode: want quick, matrix, or nothing\n' "$mode" >&2
	exit 2
	;;
esac

building=
scratch=$(mktemp -d "${TMPDIR:-/tmp}/leasecache-test.XXXXXX")
trap '[[ -z $building ]] || kill "$building" 2>/dev/null || true; rm -rf "$scratch"' EXIT
report=$scratch/report
: >"$report"
export LEASECACHE_REPORT=$report

scripts/check-prereqs.sh

# Whoever names servers in the environment brings all of them; without an engine the servers come from PATH.
# Building images is mostly waiting for packages, so what needs no server runs meanwhile.
if engine_runs && ! servers_named; then
	scripts/images.sh ${images[@]+"${images[@]}"} >"$scratch/images" 2>&1 &
	building=$!
fi

failed=()
if [[ $mode == full ]]; then
	scripts/lint.sh || failed+=(lint)
fi

if [[ -n $building ]]; then
	heading "images"
	built=0
	wait "$building" || built=$?
	building=
	cat "$scratch/images"
	[[ $built == 0 ]] || exit "$built"
fi

# One module after the other: tests of timing and of races are worth most when nothing else takes the processors.
for dir in $dirs; do
	heading "go test: $dir"
	run=(go test -race -timeout="$timeout" ${flags[@]+"${flags[@]}"})
	if [[ $dir == tests ]]; then
		run+=(-count=1 -skip='^TestMatrix$') # what a real server did last time says nothing about now
	fi
	(cd "$dir" && "${run[@]}" ./...) || failed+=("the tests of $dir")
done

# The cases of the suite wait more than they work, so many more run at a time than there are processors.
heading "matrix"
run=(go test -race -count=1 -timeout="$limit" -parallel=$((4 * $(getconf _NPROCESSORS_ONLN))) -run="$cells")
(cd tests && "${run[@]}" .) || failed+=("the matrix")

[[ $mode != full ]] || { heading "release" && scripts/release-check.sh; } || failed+=("the release: make release-check")

# A mutant that a test catches proves nothing while that test fails anyway.
if [[ $mode == full ]] && ((${#failed[@]} == 0)); then
	heading "mutants"
	scripts/mutants.sh || failed+=(mutants)
fi

heading "cells of the matrix"
sort -u "$report"
grep -q "$expect" "$report" || failed+=("the report: no line matches \"$expect\"")

if ((${#failed[@]} > 0)); then
	printf '\nFAILED after %d min %d s:\n' $((SECONDS / 60)) $((SECONDS % 60)) >&2
	printf '  - %s\n' "${failed[@]}" >&2
	exit 1
fi
printf '\nAll passed in %d min %d s.\n' $((SECONDS / 60)) $((SECONDS % 60))
