package conformance

import (
	"testing"
	"time"
)

func TestAPatienceThatIsNoneIsAnError(t *testing.T) {
	for s, want := range map[string]time.Duration{"": 30 * time.Second, "5s": 5 * time.Second, "2m": 2 * time.Minute, "30": 0, "0s": 0, "-1s": 0} {
		if d, err := parsePatience(s); (err == nil) != (want > 0) || err == nil && d != want {
			t.Errorf("parsePatience(%q) = %v, %v; want %v", s, d, err, want)
		}
	}
}
