#!/usr/bin/env bash
# Releases every released module to a proxy in a temporary directory, and uses each from there as its users would, in an
# empty module outside of the workspace: scripts/release-check.sh [VERSION], v0.1.0 when not given.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

if [[ $(git -C "$root" rev-parse --show-toplevel 2>/dev/null) != "$(pwd -P)" ]]; then
	printf 'release-check: what is released is what git tracks, and this is not a clone: git clone the repository\n' >&2
	exit 1
fi

cd internal/release
# -v, or a run that passes would not say what it found.
LEASECACHE_RELEASE_VERSION=${1:-} go test -v -count=1 -timeout=20m -tags=release -run='^TestRelease$' . |
	grep -vE "^(=== |PASS$|[[:space:]]+--- PASS)" | sed -E 's/^ *release_test.go:[0-9]+: //'
