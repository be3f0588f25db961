/* Leases and values end at any time: by expiry, by eviction. A lease that no flight has, or will learn of, ends by itself
 * and is not counted. */

/* No flight has the lease of key k, or will learn that it has. */
#define OWNER(k) F[TOKEN(S[k].lease) / NTOK]
#define NOT_OWNED(k) (OWNER(k).nth != TOKEN(S[k].lease) % NTOK || OWNER(k).st == NONE || OWNER(k).st == ADRIFT || OWNER(k).st == ADRIFT_FILL)

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

proctype Time(byte k) {
end:
	do
	:: d_step { IS_LEASE(S[k].lease) && (expiries > 0 || NOT_OWNED(k)) -> expire_lease(k); END }
	:: d_step { S[k].v && expiries > 0 -> expire_value(k); END }
	od
}
