/* A reader arrives. Readers of a process are alike, and so are processes: they arrive in order. */
#define MAY_ARRIVE(r) (R[r].st == IDLE && ((r) % NR == 0 || R[(r) - 1].st != IDLE) && ((r) % NR != 0 || (r) < NR || R[(r) - NR].st != IDLE))

inline arrive(r, queued) {
	R[r].must = SETTLED(RKEY(r));
#ifdef STALE
	R[r].serial = S[RKEY(r)].serial;
#endif
	kind = RKIND(r);
	join_flight((r) / NR, RKEY(r), queued);
	R[r].st = WAITING; R[r].at = found % NF; R[r].before = 0;
	printf("@p%d|reader %d arrives in epoch %d, joins flight %d\n", (r) / NR, (r) % NR, R[r].must, found % NF)
}

#ifdef STALE
#define ARRIVES(r) (MAY_ARRIVE(r) && !(LOADS_HERE(r / NR)))
#else
#define ARRIVES(r) MAY_ARRIVE(r)
#endif

proctype Readers(byte r) {
end:
	do
	:: d_step { ARRIVES(r) -> arrive(r, 0); END }
#ifdef STALE
	:: d_step { MAY_ARRIVE(r) && LOADS_HERE(r / NR) -> ask_copy(r); END }
	:: d_step { R[r].st == ASKED -> arrive(r, 0); END }
#endif
#ifdef UNLEASED
	:: d_step { MAY_ARRIVE(r) && outages > 0 -> /* get.go, miss: its first GET failed */
		outages--; arrive(r, 1); END }
#endif
#ifdef REFRESH
	:: d_step { MAY_ARRIVE(r) && refreshes > 0 -> /* refresh.go */
		refreshes--;
		R[r].refresh = 1; R[r].load = loads;
		arrive(r, 0); END }
#endif
#ifdef LEAVE
	:: d_step { R[r].st == WAITING && leaves > 0 -> /* flight.go, leave: its context ends */
		leaves--;
		printf("@p%d|reader %d leaves\n", (r) / NR, (r) % NR);
		finish_reader(r); END }
#endif
	:: R[r].st == DONE -> break
	od
}
