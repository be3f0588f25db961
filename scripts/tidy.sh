#!/usr/bin/env bash
# Makes go.work name the modules of modules.txt, and go.mod and go.sum of each of them tidy.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

for dir in $(modules); do
	if [[ ! -f $dir/go.mod ]]; then
		printf 'tidy: %s is in modules.txt but has no go.mod\n' "$dir" >&2
		exit 1
	fi
done

{
	printf 'go %s\n\nuse (\n' "$(awk '$1 == "go" { print $2 }' go.mod)"
	modules released internal | sed 's|^[^.].*|./&|; s|^|\t|' | LC_ALL=C sort
	printf ')\n'
} >go.work

for dir in $(modules); do
	heading "go mod tidy: $dir"
	(cd "$dir" && go mod tidy)
done

heading "go mod tidy: scripts/golangci-lint.mod"
go mod tidy -modfile=scripts/golangci-lint.mod

# Together the modules may select versions that none of them selects alone; their sums go to go.work.sum.
# shellcheck disable=SC2046 # one word per module
GOWORK=$root/go.work go list -deps -test $(modules released internal | sed 's|.*|./&/...|') >/dev/null
