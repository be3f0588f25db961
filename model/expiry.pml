/* Leases and values end at any time: by expiry, by eviction. A lease that no flight has, or will learn of, ends by itself
 * and is not counted. */

/* No flight has the lease of key k, or will learn that it has. */
#define OWNER(k) F[TOKEN(S[k].lease) / NTOK]
#define KEEPS_TOKEN(f) ((f.st == SENT || f.st == ANSWERED) && f.asked || f.st == LOADING || f.st == FILLING || \
	f.st == FILLED && f.code == REFUSED || f.st == RELEASING)
#define NOT_OWNED(k) (OWNER(k).nth != TOKEN(S[k].lease) % NTOK || !(KEEPS_TOKEN(OWNER(k))))

inline expire_lease(k) {
	if
	:: NOT_OWNED(k) -> printf("@x|the lease, which nobody has, expires\n")
	:: else -> expiries--; printf("@x|the lease expires\n")
	fi;
	lease_lost(k);
	print_entry(k)
}

inline expire_value(k) {
	expiries--;
	printf("@x|the value expires\n");
	forget_value(k);
	print_entry(k)
}

#if defined(NO_EXPIRY) || defined(M_LEASE_WITHOUT_END)
#define LEASES_END false
#else
#define LEASES_END true
#endif

proctype Time(byte k) {
end:
	do
	:: d_step { IS_LEASE(S[k].lease) && LEASES_END && (expiries > 0 || NOT_OWNED(k)) -> expire_lease(k); END }
	:: d_step { S[k].v && expiries > 0 -> expire_value(k); END }
	od
}
