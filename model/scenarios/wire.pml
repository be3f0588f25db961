/* Faults on the wire: 2 processes with 1 reader each, 2 invalidations, 2 expiries, 2 faults. The source may change, or not, at
 * any time. */
#define NP 2
#define NR 1
#define NF 2
#define NTOK 4
#ifndef NINV
#define NINV 2
#endif
#define NEXP 2
#define FAULTS
#ifndef NFAULT
#define NFAULT 2
#endif
#define ANYBYTES
#include "../model.pml"
