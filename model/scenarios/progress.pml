/* Progress: no lease ends by itself. A flight that waits looks again when the lease is free: a look that finds it held changes
 * nothing. Then nothing can go on for ever, and who waits is not stranded: every run ends with every reader done. */
#define NP 2
#define NR 2
#define NF 3
#ifndef NINV
#define NINV 1
#endif
#define NEXP 0
#define NO_EXPIRY
#define MARKS
#define NFAIL 2
#define UNLEASED
#define NALONE 1
#define NBOUND 0
#define NOUTAGE 0
#define POLL_HELPS(f) (NOBODY_WAITS(f) || S[KEY(f)].v || !IS_LEASE(S[KEY(f)].lease))
#include "../model.pml"
