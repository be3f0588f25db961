/* The same as progress, checked for runs that go on for ever. */
#include "progress.pml"
