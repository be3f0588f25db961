/* Stale copies: 2 processes with 2 readers each, 2 invalidations, 2 expiries. It begins with a value that is
 * cached. A load may find that there is nothing. */
#define NP 2
#define NR 2
#define ABSENT
#define NF 3
#ifndef NINV
#define NINV 2
#endif
#define NEXP 2
#define STALE
#include "../model.pml"
