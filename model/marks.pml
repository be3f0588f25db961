/* Loads that end without a fill leave a mark in place of their lease: !f when they failed, !n when there was nothing to store.
 * fill.go, unfilled; backoff.go */

#ifdef M_FAILURE_TO_LATE
#define MAY_TAKE_FAILURE(r, f) true
#else
#define MAY_TAKE_FAILURE(r, f) IS_BEFORE(r, f)
#endif
#ifdef M_STRANDED
#define MOVE_ON_UNFILLED(f) skip
#else
#define MOVE_ON_UNFILLED(f) move_on(f, 0)
#endif
#ifdef M_NO_RELEASE
#define RELEASE_UNFILLED(f, m) clear_flight(f)
#else
#define RELEASE_UNFILLED(f, m) release(f, m)
#endif
inline load_failed(f) {
	failures--;
	printf("@p%d|the load of flight %d fails\n", PROCESS(f), (f) % NF);
	REMEMBER_KEY(f)
	F[f].table = 0;
	EACH_WAITER(f)
		if
		:: IS_BEFORE(w, f) MAY_TAKE_UNCACHED -> give_failure(w, F[f].tag)
		:: else -> in_vain(w)
		fi
	NEXT_WAITER;
	RELEASE_UNFILLED(f, MARK_FAILED);
	MOVE_ON_UNFILLED(f)
}
inline load_unstored(f) {
	failures--;
	printf("@p%d|flight %d has nothing to store\n", PROCESS(f), (f) % NF);
	REMEMBER_KEY(f)
	finish_uncached(f);
	RELEASE_UNFILLED(f, MARK_UNSTORED);
	MOVE_ON_UNFILLED(f)
}

/* backoff.go, failedElsewhere: for those who were there before the read was sent. */
inline failed_elsewhere(f) {
	EACH_WAITER(f)
		if
		:: MAY_TAKE_FAILURE(w, f) -> give_failure(w, F[f].tag)
		:: else -> in_vain(w)
		fi
	NEXT_WAITER;
	look_again(f)
}

/* backoff.go, unstoredElsewhere: all who wait load without a lease, if there is a place; else the flight asks for the lease in
 * place of the mark. */
inline unstored_elsewhere(f) {
	count_alone(f);
	if
	:: n < NALONE ->
		F[f].table = 0; F[f].asked = 0; F[f].nth = 0; F[f].code = 0; F[f].tag = 0;
		begin_alone(f)
	:: else -> look_again(f); F[f].over = (F[f].st == LOOK)
	fi
}

proctype Marks(byte f) {
end:
	do
	:: d_step { F[f].st == LOADING && failures > 0 -> load_failed(f); END }
	:: d_step { F[f].st == LOADING && failures > 0 -> load_unstored(f); END }
	:: d_step { F[f].st == ANSWERED && F[f].code == FAILED -> failed_elsewhere(f); END }
	:: d_step { F[f].st == ANSWERED && F[f].code == UNSTORED -> unstored_elsewhere(f); END }
	od
}

/* They end by themselves. */
proctype MarkTime(byte k) {
end:
	do
	:: d_step { S[k].lease != FREE && !IS_LEASE(S[k].lease) ->
		printf("@x|the mark expires\n");
		S[k].lease = FREE; S[k].mtag = 0; print_entry(k); END }
	od
}
