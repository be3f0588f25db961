# Draws a counterexample. Reads what the model prints when spin replays a trail: lines "@<who>|<what>", in which who is p<n>
# for a process, x for an execution on the server, s for what is stored after it, and ! for the property that is violated.

function token(n) { n += 0; return n < 3 ? "none" : sprintf("%c", 65 + n - 3) }

function lease(l, nonce) {
	if (l == 0) return "no lease"
	if (l == 1) return "mark !f"
	if (l == 2) return "mark !n"
	return "lease " token(l) ":" nonce
}

function stored(text,   a, s) {
	split(text, a, /[ :]/) # key K lease L N value V E copy C E
	s = lease(a[4], a[5])
	if (a[7]) s = s ", value of " a[8]
	if (a[10]) s = s ", stale copy of " a[11]
	if (a[2]) s = "of the other key: " s
	return s
}

function same(a, b) { return row[a] == row[b] && what[a] == what[b] }

function put(column, text) {
	line++
	row[line] = column
	what[line] = text
	if (column > widest) widest = column
	if (length(text) > wide[column]) wide[column] = length(text)
}

BEGIN {
	split("nothing|the value|leased|held, stale copy|held|failed|not stored|refused", reply, "|")
	split("rejected|accepted|present|||||refused", did, "|")
	split("cached|uncached|stale copy", how, "|")
}
!/^ *@/ { next }
{ sub(/^ *@/, ""); who = substr($0, 1, index($0, "|") - 1); text = substr($0, index($0, "|") + 1) }
who == "!" { sub(/violated: /, "", text); property = text; next }
who == "+" {
	sub(/^: /, "", text)
	if (match(text, /outcome [0-9]+/)) text = did[substr(text, 9) + 1]
	sub(/;/, ": " text ";", what[line]) || sub(/$/, ": " text, what[line])
	if (length(what[line]) > wide[row[line]]) wide[row[line]] = length(what[line])
	next
}
who == "s" { if (line) what[line] = what[line] "; " stored(text); if (length(what[line]) > wide[row[line]]) wide[row[line]] = length(what[line]); next }
{
	while (match(text, /token [0-9]+/)) text = substr(text, 1, RSTART - 1) "token\001" token(substr(text, RSTART + 6, RLENGTH - 6)) substr(text, RSTART + RLENGTH)
	gsub(/\001/, " ", text)
	while (match(text, /reply [0-9]+/)) text = substr(text, 1, RSTART - 1) reply[substr(text, RSTART + 6, RLENGTH - 6) + 1] substr(text, RSTART + RLENGTH)
	while (match(text, /outcome [0-9]+/)) text = substr(text, 1, RSTART - 1) did[substr(text, RSTART + 8, RLENGTH - 8) + 1] substr(text, RSTART + RLENGTH)
	while (match(text, /as [0-9]+/)) text = substr(text, 1, RSTART - 1) how[substr(text, RSTART + 3, RLENGTH - 3) + 1] substr(text, RSTART + RLENGTH)
	sub(/in read 2$/, "in the next read", text)
	put(who == "x" ? 9 : substr(who, 2) + 0, text)
}
END {
	processes = 0
	for (c in wide) if (c < 9 && c + 1 > processes) processes = c + 1
	head = "    "
	for (c = 0; c < processes; c++) {
		if (wide[c] < 9) wide[c] = 9
		head = head sprintf("%-" wide[c] "s  ", "process " c)
	}
	print head "server"
	for (n = 1; n <= line; n++) {
		s = sprintf("%2d  ", n)
		for (c = 0; c < processes; c++) s = s sprintf("%-" wide[c] "s  ", row[n] == c ? what[n] : "")
		if (row[n] == 9) s = s what[n]
		sub(/ +$/, "", s)
		print s
		# A cycle is unrolled by spin: once is enough.
		if (n > 3 && n + 2 <= line && same(n, n - 2) && same(n - 1, n - 3) && same(n, n + 2)) {
			print "    and so on"
			break
		}
	}
	print "violated: " (property ? property : otherwise)
}
