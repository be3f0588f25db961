/* The wire between a flight and the server. A request is executed at any time after it was sent, and its reply arrives at
 * any time after that. call.go */

#ifdef MARKS
#define IS_OVER(f) F[f].over
#else
#define IS_OVER(f) 0
#endif
inline execute_read(f) {
	t = (f) * NTOK + F[f].nth;
#ifdef REFRESH
	aside = F[f].refresh;
#endif
#ifdef MIGRATION
	if
	:: migrating -> code = REFUSED; tag = 0; nonce = 0
	:: else -> read_script(KEY(f), t, F[f].asked, IS_OVER(f))
	fi;
#else
	read_script(KEY(f), t, F[f].asked, IS_OVER(f));
#endif
	aside = 0;
	F[f].code = code; F[f].tag = tag; F[f].nonce = nonce; F[f].lost = 0; F[f].st = ANSWERED;
#ifdef STALE
	F[f].none = none; F[f].hascopy = hascopy; F[f].ctag = ctag; F[f].serial = serial;
#endif
#ifdef MARKS
	F[f].over = 0;
#endif
	printf("@x|read of p%d flight %d: reply %d\n", PROCESS(f), (f) % NF, code);
	print_entry(KEY(f))
}

#ifdef STALE
#define IS_NONE(f) F[f].none
#else
#define IS_NONE(f) 0
#endif
inline execute_fill(f) {
	printf("@x|fill of p%d flight %d\n", PROCESS(f), (f) % NF);
	t = (f) * NTOK + F[f].nth;
#ifdef MIGRATION
	if
	:: migrating -> code = REFUSED; tag = 0; print_entry(KEY(f))
	:: else -> fill_script(KEY(f), t, F[f].nonce, F[f].tag, F[f].bytes, IS_NONE(f))
	fi;
#else
	fill_script(KEY(f), t, F[f].nonce, F[f].tag, F[f].bytes, IS_NONE(f));
#endif
	F[f].code = code; F[f].st = FILLED; F[f].present = (code == PRESENT -> tag : 0);
	printf("@+|: outcome %d\n", code)
#ifdef FORGETS_FILL /* it is not sent again, nor released */
	; F[f].nth = 0; F[f].nonce = 0; F[f].bytes = 0
#ifdef STALE
	; F[f].none = 0
#endif
#endif
}

#ifdef FAULTS
#define IS_UNKNOWN(f) F[f].unknown
#else
#define IS_UNKNOWN(f) 0
#endif
#ifdef MARKS
#define MARK_OF(f) F[f].mark
#else
#define MARK_OF(f) FREE
#endif
inline execute_release(f) {
	printf("@x|release of p%d flight %d\n", PROCESS(f), (f) % NF);
	t = (f) * NTOK + F[f].nth;
	release_script(KEY(f), t, F[f].nonce, IS_UNKNOWN(f), MARK_OF(f), F[f].tag)
}

proctype Wire(byte f) {
end:
	do
	:: d_step { F[f].st == SENT -> execute_read(f); END }
	:: d_step { F[f].st == FILLING -> execute_fill(f); END }
	:: d_step { F[f].st == RELEASING -> execute_release(f); clear_flight(f); END }
#ifdef CRASH
	:: d_step { F[f].st == ADRIFT -> execute_read(f); clear_flight(f); END }
	:: d_step { F[f].st == ADRIFT_FILL -> execute_fill(f); clear_flight(f); END }
	:: d_step { F[f].st == ADRIFT || F[f].st == ADRIFT_FILL -> printf("@x|the request is lost\n"); clear_flight(f); END }
#endif
	od
}
