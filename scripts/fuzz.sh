#!/usr/bin/env bash
# scripts/fuzz.sh [TIME|list]
#
# Runs every fuzz target of every module for TIME, one after the other, 30s when not given; list only prints them. The
# targets are found, not listed, so that a new one cannot be forgotten. One that is written down, and not found by the go
# command, fails it: a build tag hides it, or its module is not in modules.txt.
#
# The last line is the summary: fuzz: targets=N seconds=N failures=N
set -euo pipefail
. "$(dirname "$0")/lib.sh"

time=${1:-30s}
targets=()
for dir in $(modules released internal); do
	# For each package, go test -list prints the targets, then "ok", the package and the time.
	listed=$(cd "$dir" && go test -list='^Fuzz' ./...)
	while read -r package target; do
		[[ -n $package ]] && targets+=("$dir $package $target")
	done < <(awk '/^Fuzz/ { t[n++] = $1 } $1 == "ok" { for (i = 0; i < n; i++) print $2, t[i]; n = 0 }' <<<"$listed")
done

written=$(git grep --untracked -hE '^func Fuzz[A-Za-z0-9_]*\([a-z]+ \*testing\.F\)' -- '*_test.go' | wc -l)
if ((${#targets[@]} == 0 || ${#targets[@]} != written)); then
	printf 'fuzz: the go command finds %d targets, and %d are written down in *_test.go files\n' "${#targets[@]}" "$written" >&2
	exit 1
fi
if [[ $time == list ]]; then
	printf '%s\n' "${targets[@]}"
	exit
fi

began=$SECONDS failed=()
for line in "${targets[@]}"; do
	read -r dir package target <<<"$line"
	heading "fuzz: $target in $package, $time"
	(cd "$dir" && go test -run='^$' -fuzz="^$target\$" -fuzztime="$time" "$package") || failed+=("$package.$target")
done

if ((${#failed[@]} > 0)); then
	printf 'fuzz: failed: %s\n' "${failed[*]}" >&2
fi
printf '\nfuzz: targets=%d seconds=%d failures=%d\n' "${#targets[@]}" $((SECONDS - began)) "${#failed[@]}"
((${#failed[@]} == 0))
