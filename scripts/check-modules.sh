#!/usr/bin/env bash
# Checks the modules against each other: the table, the go.mod files and go.work agree, everything is tidy, nobody
# depends on what they must not, and all of it builds with and without the workspace and on other platforms.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

module=github.com/leasecache/leasecache
# Each of windows, darwin, arm64 and 386 is in one of them: with an empty build cache, each costs minutes.
platforms='windows/386 darwin/arm64'
watched=(github.com/redis/go-redis github.com/redis/rueidis github.com/valkey-io/valkey-go github.com/gomodule/redigo
	github.com/valkey-io/valkey-glide github.com/testcontainers/)
# Clients that come as a static library: what holds one builds with cgo only, which needs a C compiler for each platform.
# So it is vetted for this machine's platform alone.
cgo_only=(github.com/valkey-io/valkey-glide)

problems=0
problem() {
	printf 'check-modules: %s\n' "$*" >&2
	problems=$((problems + 1))
}
finish() {
	if ((problems > 0)); then
		printf 'check-modules: %d problem(s)\n' "$problems" >&2
		exit 1
	fi
}
# starts_with TEXT PREFIX...: whether TEXT starts with one of the prefixes.
starts_with() {
	local text=$1 prefix
	shift
	for prefix; do
		[[ $text != "$prefix"* ]] || return 0
	done
	return 1
}
# required DIRECTORY prints the paths that its go.mod requires, indirect ones included.
required() { (cd "$1" && go mod edit -json) | sed -n '/"Require": \[/,/^\t\]/s/.*"Path": "\(.*\)".*/\1/p'; }
# may_hold DIRECTORY prints the third column of the table.
may_hold() { awk -v dir="$1" '!/^[[:space:]]*#/ && $1 == dir { print $3 }' modules.txt; }
path_of() { if [[ $1 == . ]]; then echo "$module"; else echo "$module/$1"; fi; }

heading "modules: the table, the go.mod files and go.work agree"

bad=$(awk '!/^[[:space:]]*(#|$)/ && (NF != 3 || $2 !~ /^(released|internal)$/)' modules.txt)
[[ -z $bad ]] || problem "modules.txt: want \"directory kind client\", with the kind released or internal: $bad"

table=$(modules | sort)
files=$(find . -name .git -prune -o -name testdata -prune -o -name go.mod -print | sed 's|^\./||; s|/*go\.mod$||; s|^$|.|' | sort)
for dir in $(comm -13 <(echo "$table") <(echo "$files")); do
	problem "$dir/go.mod is not in modules.txt: add a line, then run make tidy"
done
for dir in $(comm -23 <(echo "$table") <(echo "$files")); do
	problem "$dir is in modules.txt but has no go.mod"
done

work=$(go work edit -json go.work 2>/dev/null | sed -n 's/.*"DiskPath": "\(.*\)".*/\1/p' | sed 's|^\./||' | sort)
if [[ $work != "$(modules released internal | sort)" ]]; then
	problem "go.work does not name the released and internal modules of modules.txt: run make tidy"
	diff <(modules released internal | sort) <(echo "$work") >&2 || true
fi
finish # what follows needs every module in its place

version=$(awk '$1 == "go" { print $2 }' go.mod)
siblings=$(for dir in $(modules released); do path_of "$dir"; done)
for dir in $(modules); do
	path=$(awk '$1 == "module" { print $2 }' "$dir/go.mod")
	[[ $path == "$(path_of "$dir")" ]] || problem "$dir/go.mod: the module is $path, want $(path_of "$dir")"
done
for dir in $(modules released); do
	have=$(awk '$1 == "go" { print $2 }' "$dir/go.mod")
	[[ $have == "$version" ]] || problem "$dir/go.mod: go $have, want go $version as in the root"
	for path in $(required "$dir"); do
		case $path in "$module" | "$module"/*)
			grep -qxF "$path" <<<"$siblings" || problem "$dir/go.mod requires $path, which is not released" ;;
		esac
	done
done

heading "modules: go.mod and go.sum are tidy"

for dir in $(modules); do
	(cd "$dir" && go mod tidy -diff) || problem "$dir is not tidy: run make tidy"
done
go mod tidy -diff -modfile=scripts/golangci-lint.mod || problem "scripts/golangci-lint.mod is not tidy: run make tidy"

heading "modules: nobody depends on what they must not"

for path in $(required .); do
	case $path in github.com/google/go-cmp | go.uber.org/goleak) ;; *)
		problem "the root's go.mod requires $path: it may require go-cmp and goleak, for tests, and nothing else" ;;
	esac
done
# Only packages that are not of the standard library are printed; what tests import does not count without -test.
found=$(go list -deps -f '{{if not .Standard}}{{.ImportPath}}{{end}}' ./...) || problem "go list fails in the root module"
for path in $found; do
	case $path in "$module" | "$module"/*) ;; *)
		problem "a package of the root module imports $path: only the standard library is allowed outside tests" ;;
	esac
done
found=$(go list -deps . ./driver) || problem "go list fails for the core"
for path in $found; do
	case $path in testing | testing/* | "$module"/conformance | "$module"/conformance/*)
		problem "the core (. or ./driver) imports $path: every user's binary would hold it" ;;
	esac
done
for dir in $(modules released); do
	allowed=$(may_hold "$dir")
	found=$(cd "$dir" && go list -m -f '{{.Path}}' all) || problem "$dir: go list -m all fails"
	for path in $found; do
		if starts_with "$path" "${watched[@]}" && ! starts_with "$path" "$allowed"; then
			problem "$dir: its module graph holds $path (go mod graph tells why): users of this module would get it"
		fi
	done
done

heading "modules: everything builds, with and without the workspace"

for dir in $(modules released internal); do
	# Not stamped and not written: nobody keeps what is built here.
	(cd "$dir" && go build -buildvcs=false -o /dev/null ./...) || problem "$dir does not build with GOWORK=off"
done
sums=$(cat go.work.sum 2>/dev/null || true)
# shellcheck disable=SC2046 # one word per module
GOWORK=$root/go.work go build -buildvcs=false $(modules released internal | sed 's|.*|./&/...|') ||
	problem "the modules do not build with go.work"
[[ $(cat go.work.sum 2>/dev/null || true) == "$sums" ]] || problem "go.work.sum lacked sums, which it holds now: commit it"

heading "modules: go vet of what needs cgo"
for dir in $(modules released); do
	if starts_with "$(may_hold "$dir")" "${cgo_only[@]}"; then
		(cd "$dir" && go vet ./...) || problem "$dir: go vet fails"
	fi
done

# Nobody runs what is built here, and without optimising that takes a third less.
for platform in $platforms; do
	heading "modules: go vet for $platform"
	for dir in $(modules released); do
		! starts_with "$(may_hold "$dir")" "${cgo_only[@]}" || continue
		(cd "$dir" && CGO_ENABLED=0 GOOS=${platform%/*} GOARCH=${platform#*/} go vet -gcflags="all=-N -l" ./...) ||
			problem "$dir: go vet fails for $platform"
	done
done

finish
