//go:build !unix

package conformance

// keepPort keeps nothing: another process may get the port meanwhile.
func keepPort(string) (release func()) { return func() {} }
