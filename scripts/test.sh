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
# What of the tests module runs the suite, each in a process of its own, and what the report must hold then.
matrix=() expect=()
while read -r server; do
	matrix+=("^TestMatrix\$/^$server\$") expect+=("^cell: redigo .* on $server")
done < <(sed -n 's/.*Name: *"\([^"]*\)".*/\1/p' servertest/table.go)
case $mode in
full)
	images=() flags=() timeout=20m limit=1h
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

scratch=$(mktemp -d "${TMPDIR:-/tmp}/leasecache-test.XXXXXX")
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$scratch"' EXIT
export LEASECACHE_REPORT=$scratch/report
: >"$LEASECACHE_REPORT"

# begin NAME COMMAND... runs a command beside what follows.
begin() {
	"${@:2}" >"$scratch/$1" 2>&1 &
	echo $! >"$scratch/$1.pid"
}
# finish NAME waits for it and prints what it printed. It returns the command's status.
finish() {
	local status=0
	heading "$1"
	wait "$(cat "$scratch/$1.pid")" || status=$?
	cat "$scratch/$1"
	return "$status"
}

scripts/check-prereqs.sh "$mode"

# Whoever names servers in the environment brings all of them; without an engine the servers come from PATH.
# Building images is mostly waiting for packages, so what needs no server runs meanwhile.
building=
if engine_runs && ! servers_named; then
	building=images
	begin images scripts/images.sh ${images[@]+"${images[@]}"}
fi

failed=()
if [[ $mode == full ]]; then
	scripts/lint.sh || failed+=(lint)
fi

[[ -z $building ]] || finish images

# One module after the other: tests of timing and of races are worth most when nothing else takes the processors. The tests
# on real servers mostly wait for them, and leave time to what only computes.
for dir in $dirs; do
	heading "go test: $dir"
	run=(go test -race -timeout="$timeout" ${flags[@]+"${flags[@]}"})
	if [[ $dir == tests ]]; then
		run+=(-count=1 -skip='^TestMatrix$') # what a real server did last time says nothing about now
		begin model nice -n 19 scripts/model.sh quick
		begin release nice -n 19 scripts/release-check.sh
	fi
	(cd "$dir" && "${run[@]}" ./...) || failed+=("the tests of $dir")
done

# A site's cells run one after the other, and each ends by waiting for its slowest cases. So every server has a process of
# its own.
heading "matrix"
(cd tests && go test -race -c -o "$scratch/tests.test" .) || failed+=("the matrix does not build")
for run in "${matrix[@]}"; do
	# shellcheck disable=SC2016 # for the other shell
	begin "matrix ${run//\//,}" bash -c 'cd tests && exec "$@"' - "$scratch/tests.test" -test.count=1 -test.timeout="$limit" \
		-test.parallel=$((2 * $(getconf _NPROCESSORS_ONLN))) -test.run="$run"
done
for run in "${matrix[@]}"; do
	finish "matrix ${run//\//,}" || failed+=("the matrix: $run")
done

if [[ $mode == full ]]; then
	finish model || failed+=("the model: make model-quick")
	finish release || failed+=("the release: make release-check")
fi

# A mutant that a test catches proves nothing while that test fails anyway.
if [[ $mode == full ]] && ((${#failed[@]} == 0)); then
	heading "mutants"
	scripts/mutants.sh || failed+=(mutants)
fi

heading "cells of the matrix"
sort -u "$LEASECACHE_REPORT"
for expected in "${expect[@]}"; do
	grep -q "$expected" "$LEASECACHE_REPORT" || failed+=("the report: no line matches \"$expected\"")
done

if ((${#failed[@]} > 0)); then
	printf '\nFAILED after %d min %d s:\n' $((SECONDS / 60)) $((SECONDS % 60)) >&2
	printf '  - %s\n' "${failed[@]}" >&2
	exit 1
fi
printf '\nAll passed in %d min %d s.\n' $((SECONDS / 60)) $((SECONDS % 60))
