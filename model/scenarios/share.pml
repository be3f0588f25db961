/* Shared reads of a hot key: 1 process with 5 readers, 2 invalidations, 2 fills by other processes. */
#define NP 1
#define NR 5
#define NF 2
#define NK 1
#define NTOK 1
#define NINV 2
#define NEXP 2
#include "../state.pml"
#include "../ghosts.pml"
#include "../server.pml"
#include "../share.pml"
