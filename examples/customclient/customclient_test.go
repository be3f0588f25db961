package customclient

import (
	"bufio"
	"strings"
	"testing"
)

// What real servers send is the suite's business. This is about the rest.
func TestWhatIsNoReplyOfRESP2IsAnError(t *testing.T) {
	for name, raw := range map[string]string{
		"nothing":                   "",
		"a line that is cut":        ":1",
		"an empty line":             "\r\n",
		"a type without a value":    "$\r\n",
		"a null of RESP3":           "_\r\n",
		"a number of RESP3":         ",-1\r\n",
		"a length that is none":     "$x\r\nab\r\n",
		"a length below that of no": "*-2\r\n",
		"a length past all":         "$99999999999999999999\r\n",
		"an integer that is none":   ":x\r\n",
		"a string that is cut":      "$5\r\nab\r\n",
		"a list that is cut":        "*2\r\n:1\r\n",
		"an error in a list":        "*2\r\n-ERR no\r\n:1\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			if r, err := read(bufio.NewReader(strings.NewReader(raw))); err == nil {
				t.Errorf("%q is read as %v", raw, r)
			}
		})
	}
}
