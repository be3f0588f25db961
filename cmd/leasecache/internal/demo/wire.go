package demo

import "time"

// The demo and a worker talk in lines of JSON on the worker's standard input and
// output. The first line that a worker gets is its setup, which it answers with
// an event of kind up. Then it gets commands. Its input's end ends it.
//
//	demo                      worker
//	setup                 ->
//	                      <-  up
//	read (a round)        ->      its readers are started, and wait
//	                      <-  ready
//	start                 ->      they read
//	                      <-  paused      if the round asked for it, by a load
//	resume                ->              that has read the row
//	                      <-  done        all have what they read
//
// Instead of any of the events, failed may come, and ends the round. Rounds have
// numbers, and several may be under way.

// setup is what a worker has to know.
type setup struct {
	Number int     `json:"number"`
	Server address `json:"server"` // not an argument, which ps would show with its password
	Prefix string  `json:"prefix"`
	Source string  `json:"source"` // the path of the database
	Rows   int     `json:"rows"`
}

// command is what a worker is told to do about a round.
type command struct {
	Round int    `json:"round"`
	Do    string `json:"do"`
	// What follows belongs to doRead.
	Act     string `json:"act,omitempty"`
	Side    string `json:"side,omitempty"`
	Readers int    `json:"readers,omitempty"`
	Pause   bool   `json:"pause,omitempty"` // the load pauses once it has read the row
}

const (
	doRead   = "read"
	doStart  = "start"
	doResume = "resume"
)

// event is what a worker says about a round. The event up belongs to round 0.
type event struct {
	Round int    `json:"round"`
	Is    string `json:"is"`
	Error string `json:"error,omitempty"` // with isFailed
	// What follows belongs to isDone.
	Versions map[int]int   `json:"versions,omitempty"` // how many readers got which
	Slowest  time.Duration `json:"slowest,omitempty"`
	Rejected int           `json:"rejected,omitempty"` // fills of this process and act, so far
}

const (
	isUp     = "up"
	isReady  = "ready"
	isPaused = "paused"
	isDone   = "done"
	isFailed = "failed"
)

// mostEvents is how many events a round has.
const mostEvents = 3
