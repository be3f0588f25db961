/* Loads without a lease: because a wait bound has passed, the server is down, or a mark says that there is nothing to store.
 * unleased.go. At most NALONE of them run in a process, MaxUnleasedLoads. */

/* n: how many run in the process of f. */
inline count_alone(f) {
	n = 0; i = PROCESS(f) * NF;
	do
	:: i < PROCESS(f) * NF + NF ->
		if :: F[i].st == ALONE -> n++ :: else fi;
		i++
	:: else -> break
	od
}

/* For all who wait in f, which is in the table no more, and for nobody else. */
inline begin_alone(f) {
	count_waiters(f);
	if
	:: n == 0 -> clear_flight(f)
	:: else ->
		take_number(f);
		F[f].st = ALONE; F[f].slot = 1; F[f].tag = S[KEY(f)].epoch;
		printf("@p%d|flight %d loads without a lease, in epoch %d\n", PROCESS(f), (f) % NF, F[f].tag);
		check_loads(f)
	fi
}

/* unleased.go, endUnleased. */
inline end_alone(f) {
	EACH_WAITER(f) give(w, UNCACHED, F[f].tag) NEXT_WAITER;
#ifdef M_ALONE_FILLS
	S[KEY(f)].v = 1; S[KEY(f)].vtag = F[f].tag;
	printf("@x|the value is set\n");
	check_stored(KEY(f));
	print_entry(KEY(f));
#endif
	clear_flight(f)
}

/* overdue, before a look: the flight goes on without a lease. */
inline overdue(f) {
	bounds--;
	printf("@p%d|a wait bound passes\n", PROCESS(f));
	F[f].table = 0;
	begin_alone(f)
}

/* overdue, while a load runs: all but the one whose loader it is. */
inline overdue_load(f) {
	bounds--;
	printf("@p%d|a wait bound passes\n", PROCESS(f));
	find_slot(PROCESS(f));
	CHECK(bound_of_the_model, found != NOFLIGHT)
	g = found;
#if NK > 1
	F[g].key = F[f].key;
#endif
	EACH_WAITER(f)
		if :: F[f].leader != 1 + w % NR -> R[w].at = g % NF :: else fi
	NEXT_WAITER;
	begin_alone(g)
}

/* wait.go, unavailable, with OnUnavailable: Load. The server has not executed the read. */
inline unlease(f) {
	outages--;
	printf("@p%d|flight %d: the server is down\n", PROCESS(f), (f) % NF);
	REMEMBER_KEY(f)
	clear_flight(f);
	move_on(f, 1)
}

/* runUnleased. */
inline run_unleased(f) {
	count_alone(f);
	if
	:: n >= NALONE -> /* over the limit */
		EACH_WAITER(f) give_error(w) NEXT_WAITER;
		clear_flight(f)
	:: else ->
#ifndef M_JOIN_ALONE
		F[f].table = 0;
#endif
		begin_alone(f)
	fi
}

/* A reader other than the one whose loader runs waits in f. */
#define OTHER_WAITS(r, f) (R[r].st == WAITING && R[r].at == (f) % NF && F[f].leader != 1 + (r) % NR)
#define OTHERS_WAIT(f) (OTHER_WAITS(PROCESS(f) * NR, f) || OTHER_WAITS(PROCESS(f) * NR + NR - 1, f))

/* There is a slot of the key, and a place of MaxUnleasedLoads. */
#define PLACE(f) (F[PROCESS(f) * NF].slot + F[PROCESS(f) * NF + 1].slot + F[PROCESS(f) * NF + 2].slot < MAX_SLOTS)
#define IS_ALONE(i) (F[i].st == ALONE)
#define ALONE_PLACE(f) (IS_ALONE(PROCESS(f) * NF) + IS_ALONE(PROCESS(f) * NF + 1) + IS_ALONE(PROCESS(f) * NF + 2) < NALONE)

proctype Unleased(byte f) {
end:
	do
	:: d_step { F[f].st == LOOK && bounds > 0 && PLACE(f) && ALONE_PLACE(f) -> overdue(f); END }
	:: d_step { F[f].st == LOADING && F[f].table && bounds > 0 && PLACE(f) && ALONE_PLACE(f) && OTHERS_WAIT(f) -> overdue_load(f); END }
	:: d_step { F[f].st == SENT && outages > 0 -> unlease(f); END }
	:: d_step { F[f].st == QUEUED && PLACE(f) -> run_unleased(f); END }
	:: d_step { F[f].st == ALONE -> end_alone(f); END }
	od
}
