#!/usr/bin/env bash
# Runs every fuzz target of every module for a while, one after the other: scripts/fuzz.sh [TIME], 30s when not given.
# The targets are found, not listed, so that a new one cannot be forgotten.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

time=${1:-30s}
found=0 failed=()
for dir in $(modules released internal); do
	# For each package, go test -list prints the targets, then "ok", the package and the time.
	listed=$(cd "$dir" && go test -list='^Fuzz' ./...)
	while read -r package target; do
		[[ -n $package ]] || continue
		found=$((found + 1))
		heading "fuzz: $target in $package, $time"
		(cd "$dir" && go test -run='^$' -fuzz="^$target\$" -fuzztime="$time" "$package") || failed+=("$package.$target")
	done < <(awk '/^Fuzz/ { t[n++] = $1 } $1 == "ok" { for (i = 0; i < n; i++) print $2, t[i]; n = 0 }' <<<"$listed")
done

if ((found == 0)); then
	printf 'fuzz: found no fuzz target\n' >&2
	exit 1
fi
if ((${#failed[@]} > 0)); then
	printf 'fuzz: failed: %s\n' "${failed[*]}" >&2
	exit 1
fi
