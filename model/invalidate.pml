/* Invalidate, invalidate.go. It is executed at any time, and returns at any time after that. Who starts when it was executed
 * gets no less than who starts when it has returned, so the epoch begins with the execution. What is left of the return is
 * that the process detaches the loads that were overtaken, if it is one of ours. */

byte overtakes[NK];          /* executed, and not returned yet */

/* invalidate.go, overtake. */
inline overtake(p, k) {
	kind = 0;
	overtake_kind(p, k);
#ifdef REFRESH
	kind = 1;
	overtake_kind(p, k)
#endif
}
inline overtake_kind(p, k) {
	find_flight(p, k, 0);
	g = found;
	if
	:: g != NOFLIGHT && F[g].st == LOADING ->
		printf("@p%d|Invalidate returns, and detaches flight %d\n", p, g % NF);
		F[g].table = 0;
		n = 0;
		EACH_WAITER(g)
			if :: !IS_BEFORE(w, g) -> n++ :: else fi
		NEXT_WAITER;
		if
		:: n > 0 ->
			join_flight(p, k, 0);
			EACH_WAITER(g)
				if :: !IS_BEFORE(w, g) -> R[w].at = found % NF :: else fi
			NEXT_WAITER
		:: else
		fi
	:: else
	fi
}

#ifdef MIGRATION
#define BY_SCRIPT (!migrating && !deleting)
#else
#define BY_SCRIPT true
#endif

/* Only then is there a load to detach. */
#ifdef NONE_FAILS
#define HAS_LOAD(kk) false
#else
#define HAS_LOAD(kk) IS_LEASE(S[kk].lease)
#endif

proctype Invalidator(byte kk) {
end:
	do
	:: d_step { invalidations > 0 && BY_SCRIPT ->
		invalidations--; overtakes[kk]++;
		printf("@x|invalidate\n");
		invalidate_script(kk); END }
	:: d_step { invalidations > 0 && HAS_LOAD(kk) -> /* it fails: the caller does not know that nothing was executed */
		invalidations--; overtakes[kk]++;
		printf("@x|an invalidation is lost\n"); END }
#ifdef FAULTS
	:: d_step { invalidations > 0 && faults > 0 -> /* and a copy of it is about */
		invalidations--; overtakes[kk]++; faults--;
		printf("@x|invalidate, and it is sent again\n");
		i = 0; do :: late[i].op != NONE -> i++ :: else -> break od;
		late[i].op = LATE_INVALIDATE;
		invalidate_script(kk); END }
#endif
	:: d_step { overtakes[kk] > 0 -> overtakes[kk]--; overtake(0, kk); END }
#if NP > 1
	:: d_step { overtakes[kk] > 0 -> overtakes[kk]--; overtake(1, kk); END }
#endif
	od
}
