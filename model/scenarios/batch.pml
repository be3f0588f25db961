/* Batches: 2 processes call GetMany for the same 2 keys, and 1 reader reads one of them. 1 invalidation; no lease ends by itself, and a
 * look that changes nothing is left out, as in progress: nobody may wait for a lease that waits for his. */
#define NP 2
#define NR 3
#define ABSENT
#define NF 4
#define NK 2
#define BATCH
#ifndef NINV
#define NINV 1
#endif
#define NEXP 0
#define NO_EXPIRY
#define POLL_HELPS(f) (NOBODY_WAITS(f) || S[KEY(f)].v || !IS_LEASE(S[KEY(f)].lease))
#include "../model.pml"
