/* Refresh: 2 processes with 2 readers and 1 reader, 1 invalidation, 1 expiry. Two of the readers may be calls of Refresh,
 * which take the lease beside a value, and for which a value is as good as none. */
#define NP 2
#define NR 2
#define ABSENT
#define NF 3
#define NINV 1
#ifndef NEXP
#define NEXP 1
#endif
#define REFRESH
#define NREFRESH 2
#include "../model.pml"
