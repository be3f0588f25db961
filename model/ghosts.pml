/* The properties. Each is checked at the step that could break it. docs/correctness.md says them in words.
 *
 * Epochs: an execution that ends the lease in order to invalidate begins the next epoch of its key, and a load has the
 * epoch in which it began. So "a load that began before the invalidation" is "a load of an earlier epoch", whichever
 * execution of the invalidation it is that the caller gets the reply to. A reader has the epoch in which it arrived. That
 * is stronger than the guarantees: they speak of when Invalidate returns, which is later. */

mtype = { G1, G2_one_lease, G2_two_loads, G3, G3_one_in_vain, G4, G5, Refresh, bound_of_the_model };

/* The name is printed when a counterexample is replayed. */
#define CHECK(name, ok) if :: (ok) :: else -> printf("@!|violated: %e\n", name); assert(false) fi

/* G1: what is cached was loaded by a load that began after the last invalidation. After every step on the server. */
inline check_stored(kk) {
	CHECK(G1, !S[kk].v || S[kk].vtag >= SETTLED(kk))
}

/* G2: a load begins under a lease while another runs, only if one of their leases has expired or was invalidated. And
 * never are there more than two loads of a key in a process. */
inline check_loads(f) {
	i = 0; n = 0;
	do
	:: i < NP * NF ->
		if
		:: i != f && F[i].st == LOADING && KEY(i) == KEY(f) ->
			CHECK(G2_one_lease, F[f].st != LOADING || F[f].lost || F[i].lost)
		:: else
		fi;
		if
		:: PROCESS(i) == PROCESS(f) && KEY(i) == KEY(f) && (F[i].st == LOADING || F[i].st == ALONE) -> n++
		:: else
		fi;
		i++
	:: else -> break
	od;
	CHECK(G2_two_loads, n <= 2)
}

/* A reader met a result that it may not use. G3: nobody waits in a process for more than one of those. */
inline in_vain(r) {
	CHECK(G3_one_in_vain, !R[r].passed)
	R[r].passed = 1
}

/* How a reader got what it got. */
#define CACHED   0  /* said to be cached */
#define UNCACHED 1  /* marked as not cached */
#define STALECOPY 2 /* marked as a stale copy */
#define ERROR    3

inline finish_reader(r) {
	R[r].st = DONE; R[r].at = 0; R[r].before = 0; R[r].must = 0; R[r].passed = 0
#ifdef STALE
	; R[r].serial = 0
#endif
#ifdef REFRESH
	; R[r].refresh = 0; R[r].load = 0
#endif
#if NK > 1
	; R[r].key = 0
#endif
}

/* Reader r gets a value that is no stale copy, loaded in epoch e. */
inline give(r, how, e) {
	printf("@p%d|reader %d gets the value of epoch %d, as %d\n", r / NR, r % NR, e, how);
	CHECK(G3, e >= R[r].must)
	finish_reader(r)
}

/* Reader r gets an error that holds no data: the server's, or of a limit. */
inline give_error(r) {
	printf("@p%d|reader %d gets an error\n", (r) / NR, (r) % NR);
	finish_reader(r)
}

/* Reader r gets the error of a load that began in epoch e, which says something about the source. */
inline give_failure(r, e) {
	printf("@p%d|reader %d gets the error of the load of epoch %d\n", (r) / NR, (r) % NR, e);
	CHECK(G3, e >= R[r].must)
	finish_reader(r)
}
