/* The protocol of leasecache. A scenario sets the bounds and what may happen, and includes this. */

#ifndef NK
#define NK 1                 /* keys */
#endif
#ifndef NTOK
#define NTOK 2               /* tokens of a flight that can be about at the same time */
#endif

#include "state.pml"
#include "ghosts.pml"
#include "server.pml"
#include "flight.pml"
#include "wire.pml"
#include "invalidate.pml"
#include "expiry.pml"

/* No deadlock: when nothing can happen any more, every reader is done. */
#if NP * NR == 1
#define ALL_DONE (R[0].st == DONE)
#elif NP * NR == 2
#define ALL_DONE (R[0].st == DONE && R[1].st == DONE)
#elif NP * NR == 3
#define ALL_DONE (R[0].st == DONE && R[1].st == DONE && R[2].st == DONE)
#else
#define ALL_DONE (R[0].st == DONE && R[1].st == DONE && R[2].st == DONE && R[3].st == DONE)
#endif

init {
	byte x;
	atomic {
		x = 0; do :: x < NP * NF -> run Flights(x); run Wire(x); x++ :: else -> break od;
		x = 0; do :: x < NP * NR -> run Readers(x); x++ :: else -> break od;
		x = 0; do :: x < NK -> run Time(x); x++ :: else -> break od;
		x = 0
	}
	ALL_DONE
}
