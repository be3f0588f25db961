/* What the model keeps. Everything is small, and a field that means nothing is 0, so that equal situations are one state.
 *
 * Numbers: process p has the readers p*NR to p*NR+NR-1 and the flights p*NF to p*NF+NF-1. A flight has NTOK tokens, and
 * token t belongs to flight t/NTOK. */

/* The lease key. */
#define FREE          0
#define MARK_FAILED   1
#define MARK_UNSTORED 2
#define LEASE(t)      (3 + (t))  /* the lease of token t, with a nonce beside it */
#define IS_LEASE(x)   ((x) >= 3)
#define TOKEN(x)      ((x) - 3)

typedef Entry {              /* what the server keeps for a key */
	byte lease;
	unsigned nonce : 2;
#ifdef MARKS
	unsigned mtag : 3;       /* ghost: the epoch of the load that left the mark */
#endif
	bit v;                   /* there is a value */
	unsigned vtag : 3;       /* ghost: the epoch in which its load began */
	bit vbytes;              /* what it is, byte for byte */
#ifdef STALE
	bit vnone;               /* it is a not-found record */
	unsigned vserial : 3;    /* ghost: the how manieth accepted fill it was */
	bit s;                   /* there is a stale copy */
	unsigned stag : 3;
	bit snone;
	unsigned sserial : 3;
	unsigned serial : 3;     /* ghost: how many fills were accepted */
#endif
	unsigned epoch : 3;      /* ghost: how many executions have ended the lease in order to invalidate */
#ifdef MIGRATION
	unsigned settled : 3;    /* ghost: the epoch from which on loads may be cached */
#endif
};
Entry S[NK];

#ifdef MIGRATION
bit migrating;               /* scripts with several keys are refused */
bit deleting;                /* the first of two deletions is done */
byte moves = NMOVE;          /* migrations that may begin */
#define SETTLED(k) S[k].settled
#else
#define SETTLED(k) S[k].epoch  /* value and lease are deleted together */
#endif

/* A flight, flight.go. */
#define NONE      0  /* the slot is free */
#define LOOK      1  /* it is about to look, or sleeps before the next look */
#define SENT      2  /* its read is on the wire */
#define ANSWERED  3  /* the read was executed, and its reply is on the wire */
#define LOADING   4  /* a load under a lease runs */
#define FILLING   5  /* its fill is on the wire */
#define FILLED    6  /* the fill was executed, and its reply is on the wire */
#define RELEASING 7  /* nobody waits any more; its release is on the wire */
#define ALONE     8  /* a load without a lease runs */
#define QUEUED    9  /* of kind unleased: it is about to load without a lease */
#define ADRIFT    10 /* its process has crashed, and its read is on the wire */
#define ADRIFT_FILL 11 /* the same for its fill */

/* Replies to a read, read.lua. To a fill: REJECTED, ACCEPTED, PRESENT, fill.lua. */
#define MISS     0
#define VALUE    1
#define LEASED   2
#define COPY     3
#define WAIT     4
#define FAILED   5
#define UNSTORED 6
#define REFUSED  7  /* an error reply: nothing was done */

#define REJECTED 0
#define ACCEPTED 1
#define PRESENT  2

#ifdef BATCH
#define BY_ITSELF(f) (!F[f].group && !F[f].together)
#else
#define BY_ITSELF(f) true
#endif

typedef Flight {
	unsigned st : 4;
	bit table;               /* it is in the table of flights: it can be joined */
	bit slot;                /* it holds one of the key's slots, maxKeyLoads */
	bit asked;               /* its read asks for the lease, with its token nth */
	unsigned nth : 2;        /* which of its tokens */
	unsigned nonce : 2;
	unsigned code : 3;       /* the reply */
	unsigned tag : 3;        /* ghost: of the value that it got or loaded */
	unsigned present : 3;    /* ghost: of the value that its fill found in its place */
	bit bytes;
	bit lost;                /* ghost: the lease has expired, or was invalidated */
#ifdef MARKS
	unsigned mark : 2;       /* what its release leaves, FREE for none */
	bit over;                /* its next read takes the lease in place of a mark */
#endif
#ifdef FAULTS
	bit unknown;             /* it releases by token, without the nonce */
#endif
#ifdef STALE
	bit none;                /* the value is a not-found record */
	bit hascopy;             /* the reply to its read has a stale copy beside the lease */
	unsigned ctag : 3;
	unsigned serial : 3;
#endif
#ifdef UNLEASED
	unsigned leader : 2;     /* whose loader runs, 1 + his number in the process */
#endif
#if NK > 1
	bit key;
#endif
#ifdef REFRESH
	bit refresh;             /* it is of the kind refresh: it leaves the value aside */
	unsigned load : 3;       /* ghost: the how manieth load it is */
#endif
#ifdef BATCH
	bit group;               /* a group looks for it */
	bit together;            /* its load is that of the other key as well */
#endif
};
Flight F[NP * NF];

#ifdef FAULTS
/* A late copy: a request that its sender has sent again, or has given up. It is executed at any later time, or never. */
#define LATE_READ       1
#define LATE_FILL       2
#define LATE_RELEASE    3
#define LATE_INVALIDATE 4
typedef Late {
	unsigned op : 3;
	byte token;
	unsigned nonce : 2;
	unsigned tag : 3;
	bit bytes;
	bit unknown;
};
Late late[NFAULT];
#endif

#if NK > 1
#define KEY(f) F[f].key
#else
#define KEY(f) 0
#endif
#define PROCESS(f) ((f) / NF)

/* A reader: one call of Get or Read whose first GET has found nothing. */
#define IDLE    0
#define WAITING 1
#define DONE    2
#define ASKED   3  /* it has asked for a stale copy in vain, and is about to join */

typedef Reader {
	unsigned st : 2;
	unsigned at : 2;         /* the flight that it waits in, by its number in the process */
	unsigned before : 4;     /* bit i: it arrived before what flight i runs now was sent or begun */
	unsigned must : 3;       /* ghost: the epoch that what it gets has to be from, at least */
	bit passed;              /* ghost: it has met a result that it may not use */
#ifdef STALE
	unsigned serial : 3;     /* ghost: how many fills had been accepted when it began */
#endif
#ifdef REFRESH
	bit refresh;             /* a call of Refresh */
	unsigned load : 3;       /* ghost: how many loads had begun when it arrived */
#endif
#if NK > 1
	bit key;
#endif
};
Reader R[NP * NR];

#if NK > 1
#define RKEY(w) R[w].key
#else
#define RKEY(w) 0
#endif

#define NOFLIGHT 255

/* Calls for every reader w that waits in flight f: EACH_WAITER(f) ... NEXT_WAITER. */
#define EACH_WAITER(f) \
	w = PROCESS(f) * NR; \
	do \
	:: w < PROCESS(f) * NR + NR -> \
		if \
		:: R[w].st == WAITING && R[w].at == (f) % NF ->
#define NEXT_WAITER \
		:: else \
		fi; \
		w++ \
	:: else -> break \
	od
#define WAITS_IN(r, f) (R[r].st == WAITING && R[r].at == (f) % NF)
#if NR == 1
#define NOBODY_WAITS(f) (!WAITS_IN(PROCESS(f), f))
#else
#define NOBODY_WAITS(f) (!WAITS_IN(PROCESS(f) * NR, f) && !WAITS_IN(PROCESS(f) * NR + 1, f) && !WAITS_IN(PROCESS(f) * NR + NR - 1, f))
#endif
#define IS_BEFORE(r, f) ((R[r].before >> ((f) % NF)) & 1)

/* What is left of the bounds. */
byte invalidations = NINV;
byte expiries = NEXP;
#ifdef FAULTS
byte faults = NFAULT;
#endif
#ifdef LEAVE
byte leaves = NLEAVE;
#endif
#ifdef CRASH
byte crashes = NCRASH;
#endif
#ifdef MARKS
byte failures = NFAIL;
#endif
#ifdef REFRESH
byte refreshes = NREFRESH;
byte loads;                  /* ghost: how many loads have begun */
#define KIND(i) F[i].refresh
#define RKIND(r) R[r].refresh
#else
#define KIND(i) 0
#define RKIND(r) 0
#endif
#ifdef UNLEASED
byte bounds = NBOUND;        /* wait bounds that pass */
byte outages = NOUTAGE;      /* reads that the server does not answer, because it is down */
#endif

/* Scratch, set and used within one step. It is no part of a state. For a search that looks breadth first spin cannot leave
 * variables out; then each step ends by clearing them. */
#ifdef BREADTH
#define SCRATCH byte
#define END w = 0; g = 0; i = 0; j = 0; n = 0; t = 0; found = 0; code = 0; tag = 0; held = 0; bytes = 0; none = 0; \
	hascopy = 0; nonce = 0; ctag = 0; serial = 0; isnew = 0; b = 0; q = 0; leased = 0; kind = 0; aside = 0
#else
#define SCRATCH hidden byte
#define END skip
#endif
SCRATCH w, g, i, j, n, t, found, code, tag, held, bytes, none, hascopy, nonce, ctag, serial, isnew, b, q, leased, kind, aside;
