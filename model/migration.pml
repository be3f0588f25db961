/* A slot migrates key by key: scripts with several keys are refused, those with one key work. invalidate.go, deleteEach, deletes
 * the lease and then the value, by a script each; the migration may end in between. So does whoever deletes by hand with two
 * commands, at any time. delete.lua */

inline delete_lease() {
#ifdef M_VALUE_FIRST
	printf("@x|delete the value\n");
	forget_value(0);
#else
	printf("@x|delete the lease\n");
	lease_lost(0);
#endif
	S[0].epoch++;
	deleting = 1;
	check_stored(0);
	print_entry(0)
}

inline delete_value() {
#ifdef M_VALUE_FIRST
	printf("@x|delete the lease\n");
	lease_lost(0);
#else
	printf("@x|delete the value\n");
	forget_value(0);
#endif
	S[0].settled = S[0].epoch;
	deleting = 0;
	overtakes[0]++;
	check_stored(0);
	print_entry(0)
}

/* wait.go, unavailable, with a server that has certainly not executed the read. */
inline read_refused(f) {
	EACH_WAITER(f) give_error(w) NEXT_WAITER;
	clear_flight(f)
}

inline fill_refused(f) {
	finish_uncached(f);
	release(f, FREE);
	move_on(f, 0)
}

proctype Migration() {
end:
	do
	:: d_step { moves > 0 && !migrating -> moves--; migrating = 1; printf("@x|the slot begins to migrate\n"); END }
	:: d_step { migrating -> migrating = 0; printf("@x|the slot has migrated\n"); END }
	:: d_step { invalidations > 0 && !deleting -> invalidations--; delete_lease(); END }
	:: d_step { deleting -> delete_value(); END }
	od
}

proctype Refusals(byte f) {
end:
	do
	:: d_step { F[f].st == ANSWERED && F[f].code == REFUSED -> read_refused(f); END }
	:: d_step { F[f].st == FILLED && F[f].code == REFUSED -> fill_refused(f); END }
	od
}
