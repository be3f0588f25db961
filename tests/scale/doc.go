// Package scale tells what a hot key costs the server as the number of processes
// grows: docs/scale.md has the table and what it means.
//
// The caches are real, on virtual time. The server is a model: it answers as
// the scripts do, which TestTheModelAnswersAsTheScriptsDo compares, takes as
// long for each command as a real one was measured to take, and runs one at a
// time. TestProcesses compares it with real processes on a real server.
package scale
