/* Faults on the wire. A request is sent again while its first copy is still about, or because its reply was lost; a caller
 * gives up when its time is over, and what it sent may still be executed; a release is lost. call.go
 *
 * Copies are executed in any order, and at any later time: as late as after an invalidation. A request that is lost is a
 * copy that is never executed. */

inline keep_copy(what, f) {
	faults--;
	i = 0;
	do
	:: late[i].op != NONE -> i++
	:: else -> break
	od;
	late[i].op = what; late[i].token = (f) * NTOK + F[f].nth;
	if
	:: what != LATE_READ ->
		late[i].nonce = F[f].nonce; late[i].unknown = F[f].unknown;
		if :: what == LATE_FILL -> late[i].tag = F[f].tag; late[i].bytes = F[f].bytes :: else fi
	:: else
	fi
}

/* wait.go, unavailable, with OnUnavailable: Fail. An error holds no data, so that everyone gets it. The lease that the read
 * may have set is released by its token. */
inline read_failed(f) {
	printf("@p%d|flight %d gives up its read\n", PROCESS(f), (f) % NF);
	F[f].nonce = 0;
	EACH_WAITER(f) give_error(w) NEXT_WAITER;
	if
	:: F[f].asked -> F[f].asked = 0; release(f, FREE); F[f].unknown = 1
	:: else -> clear_flight(f)
	fi
}

/* fill.go, filled, with an error. */
#ifdef M_UNKNOWN_IS_CACHED
#define GIVE_AFTER_UNKNOWN_FILL(f) EACH_WAITER(f) give_cached(w, f, F[f].tag) NEXT_WAITER
#else
#define GIVE_AFTER_UNKNOWN_FILL(f) finish_uncached(f)
#endif
inline fill_failed(f) {
	printf("@p%d|flight %d gives up its fill\n", PROCESS(f), (f) % NF);
	REMEMBER_KEY(f)
	GIVE_AFTER_UNKNOWN_FILL(f);
	release(f, FREE);
	move_on(f, 0)
}

proctype Faults(byte f) {
end:
	do
	:: d_step { F[f].st == SENT && F[f].asked && faults > 0 ->
		printf("@p%d|flight %d sends its read again\n", PROCESS(f), (f) % NF);
		keep_copy(LATE_READ, f); END }
	:: d_step { F[f].st == ANSWERED && faults > 0 -> faults--;
		printf("@p%d|the reply is lost, flight %d sends its read again\n", PROCESS(f), (f) % NF);
		F[f].code = 0; F[f].tag = 0; F[f].nonce = 0; F[f].lost = 0; F[f].st = SENT; END }
	:: d_step { F[f].st == SENT && faults > 0 ->
		if :: F[f].asked -> keep_copy(LATE_READ, f) :: else -> faults-- fi;
		read_failed(f); END }
	:: d_step { F[f].st == ANSWERED && faults > 0 -> faults--; read_failed(f); END }
	:: d_step { F[f].st == FILLING && faults > 0 ->
		printf("@p%d|flight %d sends its fill again\n", PROCESS(f), (f) % NF);
		keep_copy(LATE_FILL, f); END }
	:: d_step { F[f].st == FILLED && faults > 0 -> faults--;
		printf("@p%d|the reply is lost, flight %d sends its fill again\n", PROCESS(f), (f) % NF);
		F[f].code = 0; F[f].present = 0; F[f].st = FILLING; END }
	:: d_step { F[f].st == FILLING && faults > 0 -> keep_copy(LATE_FILL, f); fill_failed(f); END }
	:: d_step { F[f].st == FILLED && faults > 0 -> faults--; fill_failed(f); END }
	:: d_step { F[f].st == RELEASING && faults > 0 ->
		printf("@p%d|flight %d sends its release again\n", PROCESS(f), (f) % NF);
		keep_copy(LATE_RELEASE, f); END }
	:: d_step { F[f].st == RELEASING && faults > 0 -> faults--;
		printf("@x|the release of p%d flight %d is lost\n", PROCESS(f), (f) % NF);
		clear_flight(f); END }
	od
}

inline execute_late(c) {
	t = late[c].token;
	if
	:: late[c].op == LATE_READ -> 
		read_script(0, t, 1, 0);
		printf("@x|late copy of the read with token %d: reply %d\n", LEASE(late[c].token), code);
		print_entry(0)
	:: late[c].op == LATE_FILL ->
		printf("@x|late copy of the fill with token %d:%d\n", LEASE(late[c].token), late[c].nonce);
		fill_script(0, t, late[c].nonce, late[c].tag, late[c].bytes, 0);
		printf("@+|: outcome %d\n", code)
	:: late[c].op == LATE_RELEASE ->
		printf("@x|late copy of the release with token %d\n", LEASE(late[c].token));
		release_script(0, t, late[c].nonce, late[c].unknown, FREE, 0)
	:: late[c].op == LATE_INVALIDATE ->
		printf("@x|late copy of the invalidation\n");
		invalidate_script(0)
	fi;
	late[c].op = NONE; late[c].token = 0; late[c].nonce = 0; late[c].tag = 0; late[c].bytes = 0; late[c].unknown = 0
}

proctype LateCopies(byte c) {
end:
	do
	:: d_step { late[c].op != NONE -> execute_late(c); END }
	od
}
