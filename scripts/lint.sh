#!/usr/bin/env bash
# Everything that is checked without running a test.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

scripts/check-modules.sh
scripts/check-generate.sh
scripts/golangci.sh run
if command -v shellcheck >/dev/null; then
	heading "shellcheck"
	shellcheck -x -P scripts scripts/*.sh .ci/run
fi
