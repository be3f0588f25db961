#!/usr/bin/env bash
# Runs golangci-lint, at the version of scripts/golangci-lint.mod, in every module: scripts/golangci.sh run|fmt [ARGUMENT...]
#
# go tool -n builds it once into Go's build cache (a minute or two) and names the binary: no copy can go stale.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

lint=$(go tool -modfile=scripts/golangci-lint.mod -n golangci-lint)
failed=()
for dir in $(modules released internal); do
	heading "golangci-lint $1: $dir"
	(cd "$dir" && "$lint" "$1" --config="$root/.golangci.yml" "${@:2}" ./...) || failed+=("$dir")
done
if ((${#failed[@]} > 0)); then
	printf '\ngolangci-lint: failed in: %s\n' "${failed[*]}" >&2
	exit 1
fi
