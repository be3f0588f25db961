#!/usr/bin/env bash
# Removes every condition of the scripts, and every check of the core that a guarantee rests on, one at a time in a build
# of its own, and expects a named test to turn red. Prints the table of who caught what; a survivor fails it.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

cd tests
# -v, or a run that passes would not print the table.
go test -v -count=1 -timeout=40m -parallel=2 -tags=mutants ./mutants | grep -vE "^(=== |[[:space:]]+--- PASS)"
