#!/usr/bin/env bash
# scripts/model.sh          checks the model of the protocol in every scenario of model/scenarios.txt, exhaustively
# scripts/model.sh quick    the same with smaller bounds, in about two minutes
# scripts/model.sh mutants  weakens one rule at a time, as model/mutants.txt says: each must break the property that is named
#                           there. Writes the counterexamples into docs/correctness.md.
#
# Needs spin, which is installed where that takes no question, and a C compiler. One at a time, because each may need up to
# 2 GB of memory.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

mode=${1:-full}
memory=2048                  # MB, for a run
fair='-DCOLLAPSE -DNFAIR=6'  # with -a -f: no run in which no process is left out goes on for ever
cycles='-DCOLLAPSE -DNP'     # with -l: no run goes on for ever at all

if ! command -v spin >/dev/null; then
	# As for what images are built with: root on Debian gets it without a question.
	if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
		printf 'The model cannot be checked without spin: on Debian apt-get install spin, on macOS brew install spin, or https://spinroot.com\n' >&2
		exit 1
	fi
	{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends spin; } >/dev/null
fi

scratch=$(mktemp -d "${TMPDIR:-/tmp}/leasecache-model.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
cp -r model/. "$scratch"

# table FILE prints a table without its comments.
table() { grep -vE '^[[:space:]]*(#|$)' "model/$1"; }

# build SCENARIO FLAGS CFLAGS makes $scratch/run/pan.
# shellcheck disable=SC2086 # the flags are several
build() {
	rm -rf "$scratch/run"
	mkdir "$scratch/run"
	(
		cd "$scratch/run"
		# An error in the model can make spin take all memory.
		ulimit -v 1000000
		timeout 60 spin -a $2 "$scratch/scenarios/$1.pml"
		${CC:-cc} -O2 -w -DNOREDUCE -DMEMLIM=$memory $3 -o pan pan.c
	) >"$scratch/log" 2>&1 || {
		cat "$scratch/log" >&2
		return 1
	}
}

# replay SCENARIO FLAGS prints the picture of the counterexample that was found.
# shellcheck disable=SC2086 # the flags are several
replay() {
	(cd "$scratch/run" && spin -T -k ./*.trail $2 "$scratch/scenarios/$1.pml") | awk -v otherwise="$(otherwise "$1")" -f model/picture.awk
}

# otherwise SCENARIO prints what is broken when it is no assertion.
otherwise() { if [[ $1 == fair ]]; then echo progress; else echo deadlock; fi; }

# figure NAME prints what the last run says of NAME.
figure() {
	case $1 in
	states) awk '/states, stored/ { print $1; exit }' "$scratch/log" ;;
	depth) sed -n 's/.*depth reached \([0-9]*\).*/\1/p' "$scratch/log" ;;
	errors) sed -n 's/.*errors: \([0-9]*\).*/\1/p' "$scratch/log" ;;
	esac
}

check() {
	local name quick what flags cflags pan states total=0 scenarios=0 violations=0 began
	printf '%-10s %11s %6s %8s  %s\n' scenario states depth seconds checked
	while read -r name quick what; do
		flags='' cflags='-DSAFETY -DCOLLAPSE' pan=''
		if [[ $mode == quick ]]; then
			[[ $quick == - ]] || flags=$quick
		fi
		case $name in
		fair) cflags=$fair pan='-a -f' ;;
		acyclic) cflags=$cycles pan='-l' ;;
		esac
		build "$name" "$flags" "$cflags"
		began=$SECONDS
		# shellcheck disable=SC2086 # the flags are several
		(cd "$scratch/run" && timeout 1800 ./pan -m1000000 -w24 $pan) >"$scratch/log" 2>&1 || true
		states=$(figure states)
		printf '%-10s %11s %6s %8s  %s\n' "$name" "${states:-none}" "$(figure depth)" $((SECONDS - began)) "$what${flags:+ ($flags)}"
		# A search that was cut short is no proof: memory, time, depth.
		if [[ $(figure errors) != 0 ]] || grep -qE 'max search depth|out of memory|not completed|resource' "$scratch/log"; then
			violations=$((violations + 1))
			if compgen -G "$scratch/run/*.trail" >/dev/null; then
				replay "$name" "$flags"
			else
				cat "$scratch/log"
			fi
		fi
		scenarios=$((scenarios + 1)) total=$((total + ${states:-0}))
	done < <(table scenarios.txt)
	printf 'model: scenarios=%d states=%d violations=%d\n' "$scenarios" "$total" "$violations"
	((scenarios > 0 && violations == 0))
}

# fill_in NAME puts $scratch/NAME between the lines of docs/correctness.md that name it.
fill_in() {
	awk -v name="$1" -v from="$scratch/$1" '
		index($0, "<!-- end of " name) == 1 { skip = 0 }
		!skip
		index($0, "<!-- " name) == 1 { print ""; while ((getline line < from) > 0) print line; if (line != "") print ""; skip = 1 }
		' docs/correctness.md >"$scratch/page"
	cat "$scratch/page" >docs/correctness.md
}

mutants() {
	local name scenario property rule got flags cflags pan all=0 caught=0
	: >"$scratch/pictures"
	printf '| Mutant | Instead of the rule | Scenario | Breaks |\n|---|---|---|---|\n' >"$scratch/mutants"
	printf '%-28s %-10s %-16s %s\n' mutant scenario broken rule
	while read -r name scenario property rule; do
		all=$((all + 1))
		flags="-DM_$name -DBREADTH" cflags='-DSAFETY -DBFS' pan='' # breadth first finds the shortest
		if [[ $scenario == fair ]]; then
			flags="-DM_$name" cflags=$fair pan='-a -f'
		fi
		build "$scenario" "$flags" "$cflags"
		# shellcheck disable=SC2086 # the flags are several
		(cd "$scratch/run" && timeout 600 ./pan -m100000 -w22 $pan) >"$scratch/log" 2>&1 || true
		got='nothing'
		if compgen -G "$scratch/run/*.trail" >/dev/null; then
			replay "$scenario" "$flags" >"$scratch/picture"
			got=$(sed -n 's/^violated: //p' "$scratch/picture")
			{
				printf '### %s\n\n%s.\n\n```text\n' "$name" "${rule^}"
				cat "$scratch/picture"
				printf '```\n\n'
			} >>"$scratch/pictures"
		fi
		# shellcheck disable=SC2016 # backquotes of Markdown
		printf '| [%s](#%s) | %s | `%s` | %s |\n' "$name" "${name,,}" "$rule" "$scenario" "$got" >>"$scratch/mutants"
		printf '%-28s %-10s %-16s %s\n' "$name" "$scenario" "$got" "$rule"
		[[ $got != "$property" ]] || caught=$((caught + 1))
	done < <(table mutants.txt)
	if ((all == caught)); then
		fill_in mutants
		fill_in pictures
	fi
	printf 'model mutants: %d of %d found\n' "$caught" "$all"
	((all > 0 && all == caught))
}

case $mode in
full | quick) check ;;
mutants) mutants ;;
*)
	printf 'model.sh: "%s" is not a mode: want quick, mutants, or nothing\n' "$mode" >&2
	exit 2
	;;
esac
