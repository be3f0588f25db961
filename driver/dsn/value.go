package dsn

import (
	"net"
	"strconv"
	"strings"
	"time"
)

// Value is what the value of a parameter must be.
type Value struct {
	// Valid says whether it is. Nil takes any.
	Valid func(value string) bool
	// Want ends the error for one that is not: "want " and this.
	Want string
}

// Duration is a duration as [time.ParseDuration] takes it, above 0.
func Duration() Value {
	return Value{func(s string) bool {
		d, err := time.ParseDuration(s)
		return err == nil && d > 0
	}, "a duration such as 500ms, above 0"}
}

// Bool is true or false, as [strconv.ParseBool] takes them.
func Bool() Value {
	return Value{func(s string) bool {
		_, err := strconv.ParseBool(s)
		return err == nil
	}, "true or false"}
}

// Size is a number from 1 to 65535, as of connections.
func Size() Value { return Value{isPort, "a number from 1 to 65535"} }

// Database is the number of a database, from 0.
func Database() Value { return Value{isDatabase, "a number from 0"} }

// Word is a name without spaces. want is what an error says of it.
func Word(want string) Value {
	return Value{func(s string) bool { return s != "" && !strings.ContainsAny(s, " \r\n") }, want}
}

// Addr is host:port, without a user name.
func Addr() Value {
	return Value{func(s string) bool {
		host, port, err := net.SplitHostPort(s)
		return err == nil && host != "" && isPort(port) && !strings.ContainsAny(host, "@/")
	}, "host:port; user name and password are written once, before the first host"}
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

func isDatabase(s string) bool {
	_, err := strconv.ParseUint(s, 10, 31)
	return err == nil
}
