package glide

// What is here keeps faults of the client away.

import glide "github.com/valkey-io/valkey-glide/go/v2"

// Every command of glide asks for this, and the first one makes it, without a
// lock. Were several the first at a time, they would race.
func init() { glide.GetOtelInstance() }

// reserveStack has the goroutine's stack grow now, if it has to, and not while glide
// reads a reply. For an empty string it gets a pointer of value 1 from its library,
// and keeps it in a variable. A stack that is moved with such a pointer on it ends
// the process ("invalid pointer found on stack"). 16 KiB is several times what glide
// uses of it.
//
//go:noinline
func reserveStack(at uint) byte {
	var stack [16 << 10]byte
	stack[at%uint(len(stack))] = 1 // or the compiler leaves it out
	return stack[0]
}
