/* Faults on the wire while readers join: 2 processes with 2 readers and 1 reader, 2 invalidations, 1 expiry, 1 fault. */
#define NP 2
#define NR 2
#define ABSENT
#define NF 3
#define NTOK 4
#ifndef NINV
#define NINV 2
#endif
#define NEXP 1
#define FAULTS
#define NONE_FAILS           /* no invalidation, see joining */
#define NFAULT 1
#include "../model.pml"
