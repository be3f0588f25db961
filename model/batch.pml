/* GetMany: the first two readers of a process are one call that reads both keys, the third reads key 0 by itself. getmany.go,
 * group.go
 *
 * The flights that the call has begun are a group, with one goroutine. It sends the reads of all of them together, and sees to
 * the replies when all have come. What it has leased is loaded by one call of the loader, and filled together, by a
 * goroutine that waits for nothing else. The steps are those of a flight. */

#define IN_GROUP(f, is) (F[f].group && F[f].st == is)
#define ANY_IN_GROUP(p, is) (IN_GROUP((p) * NF, is) || IN_GROUP((p) * NF + 1, is) || IN_GROUP((p) * NF + 2, is) || IN_GROUP((p) * NF + 3, is))
#define HELPED(f) (IN_GROUP(f, LOOK) && POLL_HELPS(f))
#define LOOK_HELPS(p) (HELPED((p) * NF) || HELPED((p) * NF + 1) || HELPED((p) * NF + 2) || HELPED((p) * NF + 3))
#define TOGETHER(f, is) (!F[f].together || F[f].st == is)
#define ANY_TOGETHER(p) (F[(p) * NF].together || F[(p) * NF + 1].together || F[(p) * NF + 2].together || F[(p) * NF + 3].together)
#define ALL_TOGETHER(p, is) (TOGETHER((p) * NF, is) && TOGETHER((p) * NF + 1, is) && TOGETHER((p) * NF + 2, is) && TOGETHER((p) * NF + 3, is))

/* Does this for each flight b of process p. */
#define EACH_FLIGHT(p) b = (p) * NF; do :: b < (p) * NF + NF -> if ::
#define NEXT_FLIGHT :: else fi; b++ :: else -> break od

inline arrive(r, which) {
	R[r].key = which; R[r].must = SETTLED(which);
	join_flight((r) / NR, which, 0);
	R[r].st = WAITING; R[r].at = found % NF; R[r].before = 0;
	printf("@p%d|reader %d of key %d arrives in epoch %d, joins flight %d\n", (r) / NR, (r) % NR, which, R[r].must, found % NF)
}

inline get_many(p) {
	q = (p) * NR;
	arrive(q, 0);
	F[found].group = F[found].group | isnew;
	q++;
	arrive(q, 1);
	F[found].group = F[found].group | isnew
}

/* member.part: when only others wait in a flight, it goes on by itself. */
inline part(f) {
	n = (p) * NR + F[f].key;
	if
	:: F[f].group && !(R[n].st == WAITING && R[n].at == (f) % NF) -> F[f].group = 0
	:: else
	fi
}

inline group_look(p) {
	EACH_FLIGHT(p) IN_GROUP(b, LOOK) -> look(b); part(b) NEXT_FLIGHT
}

#ifdef M_GROUP_WAITS
#define GROUP_LOADS (q == 0)
#else
#define GROUP_LOADS true
#endif
/* group.look, the replies. q: how many have to wait. */
inline group_took(p) {
	q = 0; leased = 0;
	EACH_FLIGHT(p) IN_GROUP(b, ANSWERED) && F[b].code == VALUE -> hit(b); part(b) NEXT_FLIGHT;
	EACH_FLIGHT(p) IN_GROUP(b, ANSWERED) && (F[b].code == WAIT || F[b].code == MISS) -> look_again(b); part(b); q++ NEXT_FLIGHT;
	if
	:: GROUP_LOADS ->
		EACH_FLIGHT(p) IN_GROUP(b, ANSWERED) && F[b].code == LEASED ->
			F[b].group = 0;
			begin_load(b, BYTES(b));
			if
			:: F[b].st == LOADING -> leased++; F[b].together = 1
			:: else
			fi
		NEXT_FLIGHT;
		if
		:: leased == 1 -> /* by itself, as any load */
			EACH_FLIGHT(p) F[b].together && F[b].st == LOADING -> F[b].together = 0 NEXT_FLIGHT
		:: else
		fi
	:: else
	fi
}

/* group.lead: both leave the table before the first of the fills is sent. */
inline group_fill(p) {
	EACH_FLIGHT(p) F[b].together -> send_fill(b) NEXT_FLIGHT
}

inline group_filled(p) {
	EACH_FLIGHT(p) F[b].together && F[b].st == FILLED -> filled(b) NEXT_FLIGHT
}

/* A mutant that waits for other leases keeps what it has leased, and looks for the rest. */
#define LEASED_IN_GROUP(f) (IN_GROUP(f, ANSWERED) && F[f].code == LEASED)
#ifdef M_GROUP_WAITS
#define ANY_ANSWERED(p) false
#define NOT_ALL_LEASED(p) (!ANY_IN_GROUP(p, LOOK))
#else
#define ANY_ANSWERED(p) ANY_IN_GROUP(p, ANSWERED)
#define NOT_ALL_LEASED(p) true
#endif

proctype Group(byte p) {
end:
	do
	:: d_step { LOOK_HELPS(p) && !ANY_IN_GROUP(p, SENT) && !ANY_ANSWERED(p) -> group_look(p); END }
	:: d_step { ANY_IN_GROUP(p, ANSWERED) && !ANY_IN_GROUP(p, SENT) && NOT_ALL_LEASED(p) -> group_took(p); END }
	:: d_step { ANY_TOGETHER(p) && ALL_TOGETHER(p, LOADING) -> group_fill(p); END }
	:: d_step { ANY_TOGETHER(p) && ALL_TOGETHER(p, FILLED) -> group_filled(p); END }
	od
}

proctype Readers(byte r) {
end:
	do
	:: d_step { (r) % NR == 0 && R[r].st == IDLE -> get_many(r / NR); END }
	:: d_step { (r) % NR == 2 && R[r].st == IDLE -> arrive(r, 0); END }
	:: R[r].st == DONE -> break
	od
}
