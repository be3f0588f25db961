/* Stale copies: Options.Stale. wait.go, serveStale; fill.go, assume; get.go, miss */

/* G5: a copy is not older than a value that was cached before the reader began, and is never a not-found record. */
inline give_copy(r, which, isnone, e) {
	printf("@p%d|reader %d gets the stale copy of epoch %d\n", (r) / NR, (r) % NR, e);
	CHECK(G5, which >= R[r].serial && !isnone)
	finish_reader(r)
}

#ifdef M_COPY_TO_LATE
#define MAY_TAKE_COPY(r, f) true
#else
#define MAY_TAKE_COPY(r, f) IS_BEFORE(r, f)
#endif

/* The reply says that another holds the lease: those who were there before the read was sent get the copy. */
inline serve_copy(f) {
	EACH_WAITER(f)
		if
		:: MAY_TAKE_COPY(w, f) -> give_copy(w, F[f].serial, F[f].none, F[f].ctag)
		:: else -> in_vain(w)
		fi
	NEXT_WAITER;
	look_again(f)
}

/* q: who came first. One who has asked for a copy may have been passed by another. Both ghosts grow with time; who is equal in
 * them and in the bit is alike. load.go, first */
inline find_leader(f) {
	q = 255; n = 255;
	EACH_WAITER(f)
		i = 2 * (R[w].must + R[w].serial) + 1 - IS_BEFORE(w, f);
		if
		:: i < n -> n = i; q = w
		:: else
		fi
	NEXT_WAITER
}

/* The reply brought the lease: the others need not wait for the load. */
inline spare(f) {
	if
	:: F[f].hascopy ->
		find_leader(f);
		EACH_WAITER(f)
			if
			:: w != q && MAY_TAKE_COPY(w, f) -> give_copy(w, F[f].serial, F[f].none, F[f].ctag)
			:: else
			fi
		NEXT_WAITER;
		F[f].hascopy = 0; F[f].ctag = 0; F[f].serial = 0
	:: else
	fi;
	F[f].none = 0
}

/* A reader in whose process a load runs asks for the copy, and for no lease. */
inline ask_copy(r) {
	R[r].must = SETTLED(RKEY(r)); R[r].serial = S[RKEY(r)].serial;
	read_script(RKEY(r), 0, 0, 0);
	printf("@x|read of p%d reader %d for a stale copy: reply %d\n", (r) / NR, (r) % NR, code);
	if
	:: code == VALUE -> give(r, CACHED, tag)
	:: code == COPY -> give_copy(r, serial, none, ctag)
	:: else -> R[r].st = ASKED; R[r].must = 0; R[r].serial = 0
	fi
}

proctype CopyTime(byte k) {
end:
	do
	:: d_step { S[k].s -> printf("@x|the stale copy expires\n"); forget_copy(k); print_entry(k); END }
	od
}
