// Package tests runs what needs real servers, several processes or more than
// one module: the conformance suite of every adapter on every server, and the
// behaviour of the whole under load and faults. It is never released.
package tests
