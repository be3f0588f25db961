/* The flights of a process: flight.go, wait.go, fill.go, unleased.go, backoff.go. A step is what the code does under the
 * shard's lock, with what it does before anybody can see a difference.
 *
 * Order numbers: "arrived < step" of a reader and a flight is bit `flight` of the reader's field before. When a flight
 * sends a read or begins a load, the bit becomes 1 for all who wait anywhere in the process, because the number that it
 * takes is larger than theirs. It is 0 for who arrives later, and for a flight that is new. */

/* n: how many wait in f. */
inline count_waiters(f) {
	n = 0;
	EACH_WAITER(f) n++ NEXT_WAITER
}

/* The flight takes the next number. */
inline take_number(f) {
	w = PROCESS(f) * NR;
	do
	:: w < PROCESS(f) * NR + NR ->
		if
		:: R[w].st == WAITING -> R[w].before = R[w].before | (1 << ((f) % NF))
		:: else
		fi;
		w++
	:: else -> break
	od
}

inline clear_flight(f) {
	F[f].st = NONE; F[f].table = 0; F[f].slot = 0; F[f].asked = 0; F[f].nth = 0; F[f].nonce = 0; F[f].code = 0;
	F[f].tag = 0; F[f].present = 0; F[f].bytes = 0; F[f].lost = 0;
#ifdef MARKS
	F[f].mark = 0; F[f].over = 0;
#endif
#ifdef FAULTS
	F[f].unknown = 0;
#endif
#ifdef STALE
	F[f].none = 0; F[f].hascopy = 0; F[f].ctag = 0; F[f].serial = 0;
#endif
#ifdef UNLEASED
	F[f].leader = 0;
#endif
#if NK > 1
	F[f].key = 0;
#endif
#ifdef REFRESH
	F[f].refresh = 0; F[f].load = 0;
#endif
#ifdef BATCH
	F[f].group = 0; F[f].together = 0;
#endif
	w = PROCESS(f) * NR;
	do
	:: w < PROCESS(f) * NR + NR -> R[w].before = R[w].before & ~(1 << ((f) % NF)); w++
	:: else -> break
	od
}

/* found: the flight of process p and key k that can be joined, or NOFLIGHT. QUEUED is the kind unleased; kind is 1 for refresh. */
inline find_flight(p, k, queued) {
	found = NOFLIGHT; i = p * NF;
	do
	:: i < p * NF + NF ->
		if
		:: F[i].table && KEY(i) == k && ((F[i].st == QUEUED) == queued) && KIND(i) == kind -> found = i
		:: else
		fi;
		i++
	:: else -> break
	od
}

/* found: a free slot for a flight of process p. */
inline find_slot(p) {
	found = NOFLIGHT; i = p * NF;
	do
	:: i < p * NF + NF && F[i].st != NONE -> i++
	:: else -> break
	od;
	if
	:: i < p * NF + NF -> found = i
	:: else
	fi
}

/* found: the flight that who moves on or arrives joins; it may be new, isnew. */
inline join_flight(p, k, queued) {
	isnew = 0;
	find_flight(p, k, queued);
	if
	:: found == NOFLIGHT ->
		find_slot(p);
		CHECK(bound_of_the_model, found != NOFLIGHT)
		F[found].st = (queued -> QUEUED : LOOK); F[found].table = 1;
		isnew = 1
#ifdef REFRESH
		; F[found].refresh = kind
#endif
#if NK > 1
		; F[found].key = k
#endif
	:: else
	fi
}

#ifdef REFRESH
SCRATCH mkind;
#define KEY_OF_MOVE 0
#define KIND_OF_MOVE mkind
#define REMEMBER_KEY(f) mkind = F[f].refresh;
#else
#define KIND_OF_MOVE 0
#if NK > 1
SCRATCH mkey;
#define KEY_OF_MOVE mkey
#define REMEMBER_KEY(f) mkey = F[f].key;
#else
#define KEY_OF_MOVE 0
#define REMEMBER_KEY(f)
#endif
#endif

/* flight.go, moveOn: all who still wait in f, which is not in the table any more. */
inline move_on(f, queued) {
	count_waiters(f);
	if
	:: n > 0 ->
		kind = KIND_OF_MOVE;
		join_flight(PROCESS(f), KEY_OF_MOVE, queued);
		EACH_WAITER(f) R[w].at = found % NF NEXT_WAITER
	:: else
	fi
}

/* found: how many loads run or may start in the process of f, for its key. */
inline count_slots(f) {
	n = 0; i = PROCESS(f) * NF;
	do
	:: i < PROCESS(f) * NF + NF ->
		if
		:: F[i].slot && KEY(i) == KEY(f) -> n++
		:: else
		fi;
		i++
	:: else -> break
	od
}

/* A token that nothing which is still about carries. scripts.go, NewToken */
inline new_token(f) {
	F[f].nth = 0; found = 1;
	do
	:: found ->
		found = 0; t = (f) * NTOK + F[f].nth;
		i = 0;
		do
		:: i < NK ->
			if :: S[i].lease == LEASE(t) -> found = 1 :: else fi;
			i++
		:: else -> break
		od;
#ifdef FAULTS
		i = 0;
		do
		:: i < NFAULT ->
			if :: late[i].op != NONE && late[i].op != LATE_INVALIDATE && late[i].token == t -> found = 1 :: else fi;
			i++
		:: else -> break
		od;
#endif
		if
		:: found ->
			CHECK(bound_of_the_model, F[f].nth < NTOK - 1)
			F[f].nth++
		:: else
		fi
	:: else -> break
	od
}

#ifdef M_NO_SLOTS
#define MAX_SLOTS 255
#else
#define MAX_SLOTS 2
#endif
/* wait.go, look, reserve and readOrLease, until the read is sent. */
inline look(f) {
	count_waiters(f);
	if
	:: n == 0 -> clear_flight(f)
	:: else ->
		count_slots(f);
		F[f].slot = (n < MAX_SLOTS); F[f].asked = F[f].slot;
		if :: F[f].asked -> new_token(f) :: else fi;
		take_number(f);
		F[f].st = SENT;
#ifdef M_LOAD_BEFORE_LEASE
		F[f].present = S[KEY(f)].epoch;
#endif
		printf("@p%d|flight %d sends read, token %d\n", PROCESS(f), (f) % NF, F[f].asked * LEASE((f) * NTOK + F[f].nth))
	fi
}

/* Back to looking, after a reply that does not end the flight. wait.go, run, stay */
inline look_again(f) {
	F[f].slot = 0; F[f].asked = 0; F[f].nth = 0; F[f].code = 0; F[f].tag = 0; F[f].nonce = 0; F[f].lost = 0;
#ifdef STALE
	F[f].none = 0; F[f].hascopy = 0; F[f].ctag = 0; F[f].serial = 0;
#endif
	F[f].st = LOOK;
	count_waiters(f);
	if :: n == 0 -> clear_flight(f) :: else fi
}

#ifdef M_JOIN_SENT_READ
#define MAY_TAKE_HIT(r, f) true
#else
#define MAY_TAKE_HIT(r, f) IS_BEFORE(r, f)
#endif
/* wait.go, hit. */
inline hit(f) {
	EACH_WAITER(f)
		if
		:: MAY_TAKE_HIT(w, f) -> give(w, CACHED, F[f].tag)
		:: else -> in_vain(w)
		fi
	NEXT_WAITER;
	look_again(f)
}

#ifdef M_LOAD_BEFORE_LEASE
#define BEGAN(f) F[f].present
#else
#define BEGAN(f) S[KEY(f)].epoch
#endif
/* fill.go, lead and assume: the lease is the flight's, its load begins, which reads the source. */
inline begin_load(f, content) {
	count_waiters(f);
	F[f].code = 0;
	if
	:: n == 0 -> release(f, FREE)
	:: else ->
#ifdef STALE
		spare(f);
#endif
#ifdef UNLEASED
		w = PROCESS(f) * NR;
		do
		:: R[w].st != WAITING || R[w].at != (f) % NF -> w++
		:: else -> break
		od;
		F[f].leader = 1 + w % NR; /* load.go, first: readers arrive in order */
#endif
#ifndef M_NUMBER_AFTER_LOAD
		take_number(f);
#endif
#ifdef REFRESH
		loads++; F[f].load = loads;
#endif
		F[f].st = LOADING; F[f].tag = BEGAN(f); F[f].bytes = content; F[f].present = 0;
		printf("@p%d|flight %d loads in epoch %d\n", PROCESS(f), (f) % NF, F[f].tag);
		check_loads(f)
	fi
}

/* release.go: in the background. */
inline release(f, m) {
	F[f].st = RELEASING; F[f].table = 0; F[f].slot = 0; F[f].code = 0; F[f].bytes = 0; F[f].lost = 0;
#ifdef MARKS
	F[f].mark = m;
	if :: m == FREE -> F[f].tag = 0 :: else fi;
#else
	F[f].tag = 0;
#endif
#ifdef STALE
	F[f].none = 0; F[f].hascopy = 0; F[f].ctag = 0; F[f].serial = 0;
#endif
#ifdef UNLEASED
	F[f].leader = 0;
#endif
	printf("@p%d|flight %d sends release\n", PROCESS(f), (f) % NF)
}

/* The loader has returned a value. fill.go, sending: the flight leaves the table before the fill is first sent. */
inline send_fill(f) {
#ifndef M_JOIN_UNTIL_REPLY
	F[f].table = 0;
#endif
#ifdef M_NUMBER_AFTER_LOAD
	take_number(f);
#endif
	F[f].slot = 0; F[f].lost = 0; F[f].st = FILLING;
#ifdef UNLEASED
	F[f].leader = 0;
#endif
	printf("@p%d|flight %d sends fill with the value of epoch %d\n", PROCESS(f), (f) % NF, F[f].tag)
}

#define GIVES_UNCACHED false
#ifdef M_JOIN_UNFILLED
#define MAY_TAKE_UNCACHED || true
#else
#define MAY_TAKE_UNCACHED
#endif
/* fill.go, finish: those who were there before the load began get its value, marked as not cached. The others move on. */
inline finish_uncached(f) {
	F[f].table = 0;
	EACH_WAITER(f)
		if
		:: IS_BEFORE(w, f) MAY_TAKE_UNCACHED -> give(w, UNCACHED, F[f].tag)
		:: else -> in_vain(w)
		fi
	NEXT_WAITER
}

/* G4: what is said to be cached is what the fill wrote, or found in its place. */
inline give_cached(r, f, e) {
	CHECK(G4, F[f].st == FILLED && (F[f].code == ACCEPTED || F[f].code == PRESENT))
	give(r, CACHED, e)
}

#ifdef M_JOIN_REJECTED
#define MAY_TAKE_REJECTED || true
#else
#define MAY_TAKE_REJECTED
#endif
#ifdef M_REJECTED_IS_CACHED
#define GIVE_REJECTED(r, f) give_cached(r, f, F[f].tag)
#else
#define GIVE_REJECTED(r, f) give(r, UNCACHED, F[f].tag)
#endif
/* Refresh asks for a load that begins after it. */
#if defined(REFRESH) && !defined(M_REFRESH_JOINS)
#define MAY_TAKE_CACHED(r, f) (!F[f].refresh || IS_BEFORE(r, f))
#else
#define MAY_TAKE_CACHED(r, f) true
#endif
/* fill.go, filled, by the reply in F[f].code. Where another's value is present, everyone gets what a read would have found
 * that was sent with the fill. */
inline filled(f) {
	F[f].table = 0;
	REMEMBER_KEY(f)
	if
	:: F[f].code == REJECTED ->
		EACH_WAITER(f)
			if
			:: IS_BEFORE(w, f) MAY_TAKE_REJECTED -> GIVE_REJECTED(w, f)
			:: else -> in_vain(w)
			fi
		NEXT_WAITER
	:: else ->
		tag = (F[f].code == PRESENT -> F[f].present : F[f].tag);
		EACH_WAITER(f)
			if
			:: MAY_TAKE_CACHED(w, f) ->
#ifdef REFRESH
				CHECK(Refresh, !R[w].refresh || F[f].load > R[w].load)
#endif
				give_cached(w, f, tag)
			:: else -> in_vain(w)
			fi
		NEXT_WAITER
	fi;
	clear_flight(f);
	move_on(f, 0)
}

#ifndef POLL_HELPS
#define POLL_HELPS(f) true
#endif
#define BYTES(f) (S[KEY(f)].epoch & 1)  /* the source holds A, B, A, ... */

proctype Flights(byte f) {
end:
	do
	:: d_step { BY_ITSELF(f) && F[f].st == LOOK && POLL_HELPS(f) -> look(f); END }
	:: d_step { BY_ITSELF(f) && F[f].st == ANSWERED && F[f].code == VALUE -> hit(f); END }
	:: d_step { BY_ITSELF(f) && F[f].st == ANSWERED && (F[f].code == WAIT || F[f].code == MISS) -> look_again(f); END }
#ifdef ANYBYTES
	:: d_step { BY_ITSELF(f) && F[f].st == ANSWERED && F[f].code == LEASED -> begin_load(f, 0); END }
	:: d_step { BY_ITSELF(f) && F[f].st == ANSWERED && F[f].code == LEASED -> begin_load(f, 1); END }
#else
	:: d_step { BY_ITSELF(f) && F[f].st == ANSWERED && F[f].code == LEASED -> begin_load(f, BYTES(f)); END }
#endif
#ifdef STALE
	:: d_step { BY_ITSELF(f) && F[f].st == ANSWERED && F[f].code == LEASED -> begin_load(f, 0); F[f].none = (F[f].st == LOADING); END }
	:: d_step { BY_ITSELF(f) && F[f].st == ANSWERED && F[f].code == COPY -> serve_copy(f); END }
#endif
	:: d_step { BY_ITSELF(f) && F[f].st == LOADING -> send_fill(f); END }
	:: d_step { BY_ITSELF(f) && F[f].st == FILLED && F[f].code != REFUSED -> filled(f); END }
	od
}

