/* The scripts, one inline for each: a script is one step. They leave their reply in code, and what belongs to it in tag,
 * bytes, none, nonce, and for a stale copy hascopy, ctag, serial. */

#ifdef STALE
#define COPY_OF(k) S[k].s, S[k].stag
#else
#define COPY_OF(k) 0, 0
#endif
inline print_entry(k) {
	printf("@s|lease %d:%d value %d:%d copy %d:%d\n", S[k].lease, S[k].nonce, S[k].v, S[k].vtag, COPY_OF(k))
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
inline read_script(k, tok, asks, overmark) {
	code = MISS; tag = 0; bytes = 0; none = 0; hascopy = 0; nonce = 0; ctag = 0; serial = 0;
	if
	:: S[k].v ->
		code = VALUE; tag = S[k].vtag
#ifdef STALE
		; none = S[k].vnone
#endif
	:: else ->
#ifdef STALE
		hascopy = S[k].s; ctag = S[k].stag; serial = S[k].sserial; none = S[k].snone;
#endif
		held = S[k].lease;
#ifdef MARKS
		if
		:: held != FREE && !IS_LEASE(held) ->
			tag = S[k].mtag;
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
				S[k].lease = LEASE(tok); S[k].nonce = nonce;
#ifdef MARKS
				S[k].mtag = 0;
#endif
				held = LEASE(tok)
			:: else
			fi;
			if
			:: (asks) && OWN_LEASE(held, tok) -> code = LEASED; nonce = S[k].nonce
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
#define SAME_BYTES(k, b, isnone)
#else
#ifdef STALE
#define SAME_BYTES(k, b, isnone) && S[k].vbytes == b && S[k].vnone == isnone
#else
#define SAME_BYTES(k, b, isnone) && S[k].vbytes == b
#endif
#endif
/* fill.lua */
#ifdef M_FILL_WITHOUT_NONCE
#define MAY_FILL(k, tok, nn) OWN_LEASE(S[k].lease, tok)
#else
#ifdef M_FILL_WITHOUT_COMPARE
#define MAY_FILL(k, tok, nn) true
#else
#define MAY_FILL(k, tok, nn) (OWN_LEASE(S[k].lease, tok) && S[k].nonce == nn)
#endif
#endif
inline fill_script(k, tok, nn, began, content, isnone) {
	tag = 0;
	if
	:: MAY_FILL(k, tok, nn) ->
		S[k].v = 1; S[k].vtag = began; S[k].vbytes = content; S[k].lease = FREE; S[k].nonce = 0;
#ifdef STALE
		S[k].serial++; S[k].vserial = S[k].serial; S[k].vnone = isnone;
#ifndef M_FILL_KEEPS_COPY
		forget_copy(k);
#endif
#endif
		code = ACCEPTED; tag = began
	:: else ->
		if
		:: S[k].v SAME_BYTES(k, content, isnone) -> code = PRESENT; tag = S[k].vtag
		:: else -> code = REJECTED
		fi
	fi;
	check_stored(k);
	print_entry(k)
}

inline forget_value(k) {
	S[k].v = 0; S[k].vtag = 0; S[k].vbytes = 0
#ifdef STALE
	; S[k].vnone = 0; S[k].vserial = 0
#endif
}

#ifdef STALE
inline forget_copy(k) {
	S[k].s = 0; S[k].stag = 0; S[k].snone = 0; S[k].sserial = 0
}
#endif

/* release.lua. any: by token, without the nonce. e is the epoch of the load that leaves the mark. */
#ifdef M_RELEASE_WITHOUT_COMPARE
#define MAY_RELEASE(k, tok, nn, any) IS_LEASE(S[k].lease)
#else
#define MAY_RELEASE(k, tok, nn, any) (OWN_LEASE(S[k].lease, tok) && (any || S[k].nonce == nn))
#endif
inline release_script(k, tok, nn, any, left, e) {
	if
	:: MAY_RELEASE(k, tok, nn, any) ->
		S[k].lease = left; S[k].nonce = 0
#ifdef MARKS
		; S[k].mtag = (left == FREE -> 0 : e)
#endif
	:: else
	fi;
	print_entry(k)
}

/* The lease is gone by something that is allowed to end it. */
inline lease_lost(k) {
	if
	:: IS_LEASE(S[k].lease) ->
		t = TOKEN(S[k].lease);
		g = t / NTOK;
		if
		:: F[g].nth == t % NTOK && (F[g].st == ANSWERED || F[g].st == LOADING) -> F[g].lost = 1
		:: else
		fi
	:: else
	fi;
	S[k].lease = FREE; S[k].nonce = 0
#ifdef MARKS
	; S[k].mtag = 0
#endif
}

#ifdef M_COPY_OF_NOT_FOUND
#define KEEPS_COPY(k) true
#else
#define KEEPS_COPY(k) !S[k].vnone
#endif
/* invalidate.lua, and DEL of both keys by any client. */
inline invalidate_script(k) {
	S[k].epoch++;
#ifdef MIGRATION
	S[k].settled = S[k].epoch;
#endif
#ifndef M_DEL_WITHOUT_LEASE
	lease_lost(k);
#endif
#ifdef STALE
	if
	:: S[k].v && KEEPS_COPY(k) ->
		S[k].s = 1; S[k].stag = S[k].vtag; S[k].snone = S[k].vnone; S[k].sserial = S[k].vserial
	:: else
	fi;
#endif
#ifndef M_DEL_WITHOUT_VALUE
	forget_value(k);
#endif
	check_stored(k);
	print_entry(k)
}
