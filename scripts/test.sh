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
releasing=
# What of the tests module runs the suite, each in a process of its own, and what the report must hold then.
matrix=() expect=()
while read -r server; do
	matrix+=("^TestMatrix\$/^$server\$") expect+=("^cell: redigo .* on $server")
done < <(sed -n 's/.*Name: *"\([^"]*\)".*/\1/p' servertest/table.go)
case $mode in
full)
	images=() flags=() timeout=20m limit=1h releasing=later
	dirs=$(modules released internal)
	;;
quick)
	images=(valkey-9) flags=(-short) timeout=3m limit=3m
	dirs=$(modules released internal | grep -E '^(\.|adapters/.*)$')
	matrix=('^TestMatrix$/^valkey-9$/^standalone$/^goredis$/^resp3$') expect=('^cell: goredis resp3 on valkey-9')
	;;
matrix)
	images=() flags=() limit=2h
	dirs=
	matrix+=('^TestEveryCellThatIsMissingSaysWhy$') expect+=('^no cell: ')
	export LEASECACHE_MATRIX=full
	;;
*)
	printf 'test.sh: "%s" is not a mode: want quick, matrix, or nothing\n' "$mode" >&2
	exit 2
	;;
esac

building=
scratch=$(mktemp -d "${TMPDIR:-/tmp}/leasecache-test.XXXXXX")
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$scratch"' EXIT
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

# A site's cells run one after the other, and each ends by waiting for its slowest cases. So every server has a process of
# its own, and the release, which is all compiling, takes what processors are left.
heading "matrix${releasing:+ and release}"
(cd tests && go test -race -c -o "$scratch/tests.test" .) || failed+=("the matrix does not build")
lanes=()
for lane in "${matrix[@]}"; do
	(cd tests && exec "$scratch/tests.test" -test.count=1 -test.timeout="$limit" -test.parallel=$((2 * $(getconf _NPROCESSORS_ONLN))) \
		-test.run="$lane") >"$scratch/lane${#lanes[@]}" 2>&1 &
	lanes+=($!)
done
if [[ -n $releasing ]]; then
	nice -n 19 scripts/release-check.sh >"$scratch/release" 2>&1 &
	releasing=$!
fi
for i in "${!lanes[@]}"; do
	wait "${lanes[i]}" || failed+=("the matrix: -run='${matrix[i]}'")
	cat "$scratch/lane$i"
done
if [[ -n $releasing ]]; then
	wait "$releasing" || failed+=("the release: make release-check")
	heading "release"
	cat "$scratch/release"
fi

# A mutant that a test catches proves nothing while that test fails anyway.
if [[ $mode == full ]] && ((${#failed[@]} == 0)); then
	heading "mutants"
	scripts/mutants.sh || failed+=(mutants)
fi

heading "cells of the matrix"
sort -u "$report"
for expected in "${expect[@]}"; do
	grep -q "$expected" "$report" || failed+=("the report: no line matches \"$expected\"")
done

if ((${#failed[@]} > 0)); then
	printf '\nFAILED after %d min %d s:\n' $((SECONDS / 60)) $((SECONDS % 60)) >&2
	printf '  - %s\n' "${failed[@]}" >&2
	exit 1
fi
printf '\nAll passed in %d min %d s.\n' $((SECONDS / 60)) $((SECONDS % 60))
