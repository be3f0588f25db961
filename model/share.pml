/* ShareReads: at most two reads of a key are on the wire in a process. Whoever comes meanwhile joins the one that is sent next.
 * share.go
 *
 * It comes before the flights, and has a model of its own: what other processes fill is one step. */

#define NEXT 2               /* R[r].at of who waits for the read that is sent next; else the read's number */

typedef HotRead {
	bit sent;
	bit answered;
	bit hit;
	unsigned tag : 3;
};
HotRead hot[2];              /* those on the wire, maxHotReads */

#ifdef M_SHARE_SENT_READ
#define JOINS(r) 1
#else
#define JOINS(r) NEXT
#endif
inline come(r) {
	R[r].st = WAITING; R[r].must = S[0].epoch;
	if
	:: !hot[0].sent -> hot[0].sent = 1; R[r].at = 0
	:: hot[0].sent && !hot[1].sent -> hot[1].sent = 1; R[r].at = 1
	:: else -> R[r].at = JOINS(r)
	fi;
	printf("@p0|reader %d comes in epoch %d, takes part in read %d\n", r, R[r].must, R[r].at)
}

inline execute_get(c) {
	hot[c].answered = 1; hot[c].hit = S[0].v; hot[c].tag = S[0].vtag;
	printf("@x|read %d is executed\n", c);
	print_entry(0)
}

inline land(c) {
	w = 0; n = 0;
	do
	:: w < NR ->
		if
		:: R[w].st == WAITING && R[w].at == c && hot[c].hit -> give(w, CACHED, hot[c].tag)
		:: R[w].st == WAITING && R[w].at == c && !hot[c].hit -> finish_reader(w)
		:: R[w].st == WAITING && R[w].at == NEXT -> R[w].at = c; n++
		:: else
		fi;
		w++
	:: else -> break
	od;
	hot[c].sent = (n > 0); hot[c].answered = 0; hot[c].hit = 0; hot[c].tag = 0
}

proctype SharedReader(byte r) {
end:
	do
	:: d_step { R[r].st == IDLE && (r == 0 || R[r - 1].st != IDLE) -> come(r); END }
	:: R[r].st == DONE -> break
	od
}

proctype SharedWire(byte c) {
end:
	do
	:: d_step { hot[c].sent && !hot[c].answered -> execute_get(c); END }
	:: d_step { hot[c].answered -> land(c); END }
	od
}

proctype Others() {
end:
	do
	:: d_step { !S[0].v && expiries > 0 -> expiries--; S[0].v = 1; S[0].vtag = S[0].epoch; printf("@x|another process fills\n"); print_entry(0); END }
	:: d_step { invalidations > 0 -> invalidations--; printf("@x|invalidate\n"); invalidate_script(0); END }
	od
}

init {
	atomic { run SharedWire(0); run SharedWire(1); run Others(); run SharedReader(0); run SharedReader(1); run SharedReader(2); run SharedReader(3); run SharedReader(4) }
	R[0].st == DONE && R[1].st == DONE && R[2].st == DONE && R[3].st == DONE && R[4].st == DONE
}
