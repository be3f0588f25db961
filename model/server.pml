/* The scripts, one inline for each: a script is one step. They leave their reply in code, and what belongs to it in tag,
 * bytes, none, nonce, and for a stale copy hascopy, ctag, serial. */

#ifdef STALE
#define COPY_OF(kk) S[kk].s, S[kk].stag
#else
#define COPY_OF(kk) 0, 0
#endif
inline print_entry(kk) {
	printf("@s|key %d lease %d:%d value %d:%d copy %d:%d\n", kk, S[kk].lease, S[kk].nonce, S[kk].v, S[kk].vtag, COPY_OF(kk))
}

/* The clock of the server: a nonce that nothing which is still about carries with this token. read.lua */
inline new_nonce(tok) {
	nonce = 0;
#ifndef M_NO_NONCE
	found = 1;
	do
	:: found ->
		found = 0;
		g = (tok) / NTOK;
		if
		:: F[g].nth == (tok) % NTOK && F[g].st != NONE && F[g].st != SENT && F[g].st != ADRIFT && F[g].nonce == nonce -> found = 1
		:: else
		fi;
#ifdef FAULTS
		j = 0;
		do
		:: j < NFAULT ->
			if
			:: (late[j].op == LATE_FILL || late[j].op == LATE_RELEASE) && late[j].token == (tok) && late[j].nonce == nonce -> found = 1
			:: else
			fi;
			j++
		:: else -> break
		od;
#endif
		if :: found -> nonce++ :: else fi
	:: else -> break
	od
#endif
}

#ifdef M_TOKEN_OF_PROCESS
#define OWN_LEASE(x, tok) (IS_LEASE(x) && TOKEN(x) / (NTOK * NF) == (tok) / (NTOK * NF))
#else
#define OWN_LEASE(x, tok) ((x) == LEASE(tok))
#endif
/* read.lua. tok is looked at only if asks. */
inline read_script(kk, tok, asks, overmark) {
	code = MISS; tag = 0; bytes = 0; none = 0; hascopy = 0; nonce = 0; ctag = 0; serial = 0;
	if
	:: S[kk].v && !aside ->
		code = VALUE; tag = S[kk].vtag
#ifdef STALE
		; none = S[kk].vnone
#endif
	:: else ->
#ifdef STALE
		hascopy = S[kk].s; ctag = S[kk].stag; serial = S[kk].sserial; none = S[kk].snone;
#endif
		held = S[kk].lease;
#ifdef MARKS
		if
		:: held != FREE && !IS_LEASE(held) ->
			tag = S[kk].mtag;
			if
			:: !(asks) || overmark -> held = FREE; tag = 0
			:: else ->
				if
				:: held == MARK_UNSTORED -> code = UNSTORED
				:: held == MARK_FAILED && !hascopy -> code = FAILED
				:: else
				fi
			fi
		:: else
		fi;
#endif
		if
		:: code == MISS ->
#ifdef M_READ_TAKES_HELD
			if :: asks -> held = FREE :: else fi;
#endif
			if
			:: (asks) && held == FREE ->
				new_nonce(tok);
				S[kk].lease = LEASE(tok); S[kk].nonce = nonce;
#ifdef MARKS
				S[kk].mtag = 0;
#endif
				held = LEASE(tok)
			:: else
			fi;
			if
			:: (asks) && OWN_LEASE(held, tok) -> code = LEASED; nonce = S[kk].nonce
			:: else ->
				nonce = 0;
				if
				:: held == FREE -> hascopy = 0
				:: hascopy -> code = COPY
				:: else -> code = WAIT
				fi
			fi
		:: else
		fi
	fi
}

#ifdef M_PRESENT_WHATEVER_IS_CACHED
#define SAME_BYTES(kk, b, isnone)
#else
#ifdef STALE
#define SAME_BYTES(kk, b, isnone) && S[kk].vbytes == b && S[kk].vnone == isnone
#else
#define SAME_BYTES(kk, b, isnone) && S[kk].vbytes == b
#endif
#endif
/* fill.lua */
#ifdef M_FILL_WITHOUT_NONCE
#define MAY_FILL(kk, tok, nn) OWN_LEASE(S[kk].lease, tok)
#else
#ifdef M_FILL_WITHOUT_COMPARE
#define MAY_FILL(kk, tok, nn) true
#else
#define MAY_FILL(kk, tok, nn) (OWN_LEASE(S[kk].lease, tok) && S[kk].nonce == nn)
#endif
#endif
inline fill_script(kk, tok, nn, began, content, isnone) {
	tag = 0;
	if
	:: MAY_FILL(kk, tok, nn) ->
		S[kk].v = 1; S[kk].vtag = began; S[kk].vbytes = content; S[kk].lease = FREE; S[kk].nonce = 0;
#ifdef STALE
		S[kk].serial++; S[kk].vserial = S[kk].serial; S[kk].vnone = isnone;
#ifndef M_FILL_KEEPS_COPY
		forget_copy(kk);
#endif
#endif
		code = ACCEPTED; tag = began
	:: else ->
		if
		:: S[kk].v SAME_BYTES(kk, content, isnone) ->
			code = PRESENT; tag = S[kk].vtag;
			CHECK(G4, S[kk].vbytes == content)
		:: else -> code = REJECTED
		fi
	fi;
	check_stored(kk);
	print_entry(kk)
}

inline forget_value(kk) {
	S[kk].v = 0; S[kk].vtag = 0; S[kk].vbytes = 0
#ifdef STALE
	; S[kk].vnone = 0; S[kk].vserial = 0
#endif
}

#ifdef STALE
inline forget_copy(kk) {
	S[kk].s = 0; S[kk].stag = 0; S[kk].snone = 0; S[kk].sserial = 0
}
#endif

/* release.lua. any: by token, without the nonce. e is the epoch of the load that leaves the mark. */
#ifdef M_RELEASE_WITHOUT_COMPARE
#define MAY_RELEASE(kk, tok, nn, any) IS_LEASE(S[kk].lease)
#else
#define MAY_RELEASE(kk, tok, nn, any) (OWN_LEASE(S[kk].lease, tok) && (any || S[kk].nonce == nn))
#endif
inline release_script(kk, tok, nn, any, left, e) {
	if
	:: MAY_RELEASE(kk, tok, nn, any) ->
		S[kk].lease = left; S[kk].nonce = 0
#ifdef MARKS
		; S[kk].mtag = (left == FREE -> 0 : e)
#endif
	:: else
	fi;
	print_entry(kk)
}

/* The lease is gone by something that is allowed to end it. */
inline lease_lost(kk) {
	if
	:: IS_LEASE(S[kk].lease) ->
		t = TOKEN(S[kk].lease);
		g = t / NTOK;
		if
		:: F[g].nth == t % NTOK && (F[g].st == ANSWERED && F[g].asked || F[g].st == LOADING) -> F[g].lost = 1
		:: else
		fi
	:: else
	fi;
#ifdef M_MARK_STAYS
	if
	:: !IS_LEASE(S[kk].lease) -> skip
	:: else ->
#endif
	S[kk].lease = FREE; S[kk].nonce = 0;
#ifdef MARKS
	S[kk].mtag = 0;
#endif
#ifdef M_MARK_STAYS
	fi;
#endif
	skip
}

#ifdef M_COPY_OF_NOT_FOUND
#define KEEPS_COPY(kk) true
#else
#define KEEPS_COPY(kk) !S[kk].vnone
#endif
/* invalidate.lua, and DEL of both keys by any client. */
inline invalidate_script(kk) {
	S[kk].epoch++;
#ifdef MIGRATION
	S[kk].settled = S[kk].epoch;
#endif
#ifndef M_DEL_WITHOUT_LEASE
	lease_lost(kk);
#endif
#ifdef STALE
	if
	:: S[kk].v && KEEPS_COPY(kk) ->
		S[kk].s = 1; S[kk].stag = S[kk].vtag; S[kk].snone = S[kk].vnone; S[kk].sserial = S[kk].vserial
	:: else
	fi;
#endif
#ifndef M_DEL_WITHOUT_VALUE
	forget_value(kk);
#endif
	check_stored(kk);
	print_entry(kk)
}
