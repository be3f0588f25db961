/* Loads that fail or have nothing to store, and loads without a lease: 2 processes with 2 and 1 readers... */
#define NP 2
#define NR 2
#define ABSENT
#define NF 3
#define NINV 2
#define NEXP 0
#define MARKS
#define NFAIL 1
#define UNLEASED
#define NALONE 1
#define NBOUND 1
#define NOUTAGE 1
#include "../model.pml"
