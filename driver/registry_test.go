package driver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// opener is a Driver that opens, or fails with err.
type opener struct {
	err error
}

type opened struct {
	Evaler
	dsn string
}

func (o opener) Open(dsn string) (Evaler, error) {
	if o.err != nil {
		return nil, o.err
	}
	return opened{dsn: dsn}, nil
}

// adopter is a Driver that also takes clients of type C.
type adopter[C any] struct {
	opener
	fail error
}

type adopted[C any] struct {
	Evaler
	client C
}

func (a adopter[C]) Adopt(client any) (Evaler, bool, error) {
	c, ok := client.(C)
	if !ok {
		return nil, false, nil
	}
	if a.fail != nil {
		return nil, true, a.fail
	}
	return adopted[C]{client: c}, true, nil
}

// emptyRegistry gives the test a registry of its own.
func emptyRegistry(t *testing.T) {
	t.Helper()
	registry.Lock()
	defer registry.Unlock()
	before := registry.drivers
	registry.drivers = nil
	t.Cleanup(func() {
		registry.Lock()
		defer registry.Unlock()
		registry.drivers = before
	})
}

// addKnown makes name the project's own adapter for clients of the package at
// client.
func addKnown(t *testing.T, name, client string) {
	t.Helper()
	before := known
	known = append(slices.Clone(known), adapter{name, client, "what it takes"})
	t.Cleanup(func() { known = before })
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error is %q, want it to say %q", err, part)
		}
	}
	if !strings.HasPrefix(err.Error(), "leasecache: ") {
		t.Errorf("the error is %q, want it to begin with the package", err)
	}
}

func TestRegisterPanicsOnAMistakeInTheProgram(t *testing.T) {
	emptyRegistry(t)
	Register("taken", opener{})
	for _, test := range []struct {
		name, register string
		driver         Driver
		want           string
	}{
		{"nil driver", "nildriver", nil, "driver is nil"},
		{"empty name", "", opener{}, "name is empty"},
		{"name that is taken", "taken", opener{}, `twice for driver "taken"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			defer func() {
				p := fmt.Sprint(recover())
				if !strings.HasPrefix(p, "leasecache/driver: Register: ") || !strings.Contains(p, test.want) {
					t.Errorf("Register panicked with %q, want %q", p, test.want)
				}
				if got := Drivers(); !slices.Equal(got, []string{"taken"}) {
					t.Errorf("then registered are %q", got)
				}
			}()
			Register(test.register, test.driver)
		})
	}
}

func TestDriversAreSortedAndTheCallersOwn(t *testing.T) {
	emptyRegistry(t)
	if got := Drivers(); len(got) != 0 {
		t.Errorf("an empty registry lists %q", got)
	}
	for _, name := range []string{"b", "c", "a"} {
		Register(name, opener{})
	}
	got := Drivers()
	if diff := cmp.Diff([]string{"a", "b", "c"}, got); diff != "" {
		t.Errorf("Drivers (-want +got):\n%s", diff)
	}
	got[0] = "changed"
	if again := Drivers(); again[0] != "a" {
		t.Errorf("a caller changed the list to %q", again)
	}
}

func TestOpenHandsTheDSNToTheDriver(t *testing.T) {
	emptyRegistry(t)
	Register("one", opener{err: errors.New("the other driver")})
	Register("two", opener{})
	e, err := Open("two", "two://dsn")
	if err != nil || e.(opened).dsn != "two://dsn" {
		t.Errorf("Open = %v, %v", e, err)
	}
}

func TestOpenWrapsTheDriversErrorAndPrintsNoDSN(t *testing.T) {
	emptyRegistry(t)
	cause := errors.New("the DSN has no host")
	Register("fussy", opener{err: cause})
	_, err := Open("fussy", "fussy://:hunter2@")
	wantError(t, err, `driver "fussy"`, cause.Error())
	if !errors.Is(err, cause) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error is %q, want the driver's own and no password", err)
	}
}

func TestOpenWithAnUnknownDriverListsThoseThereAreAndTheImportToAdd(t *testing.T) {
	emptyRegistry(t)
	_, err := Open("goredis", "redis://:hunter2@localhost")
	wantError(t, err, `unknown driver "goredis" (forgotten import?)`, "registered are none",
		`add: import _ "github.com/leasecache/leasecache/adapters/goredis"`)
	Register("b", opener{})
	Register("a", opener{})
	_, err = Open("mine", "redis://:hunter2@localhost")
	wantError(t, err, `unknown driver "mine" (forgotten import?)`, "registered are a, b", "import its package")
	if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "adapters/mine") {
		t.Errorf("the error is %q, want no password and no import that does not exist", err)
	}
}

func TestEveryKnownAdapterIsNamedByTheImportToAdd(t *testing.T) {
	emptyRegistry(t)
	for _, k := range known {
		_, err := Open(k.name, "")
		wantError(t, err, fmt.Sprintf("add: import _ %q", adapterPath+k.name))
	}
}

func TestAdoptAsksTheDriversInTheOrderOfTheirNames(t *testing.T) {
	emptyRegistry(t)
	Register("a", opener{}) // cannot adopt
	Register("d", adopter[fmt.Stringer]{fail: errors.New("asked the wrong one")})
	Register("c", adopter[*bytes.Buffer]{})
	Register("b", adopter[*json.Decoder]{fail: errors.New("asked the wrong one")})
	client := &bytes.Buffer{}
	e, err := Adopt(client)
	if err != nil {
		t.Fatal(err)
	}
	if got := e.(adopted[*bytes.Buffer]).client; got != client {
		t.Errorf("Adopt took %p, want %p", got, client)
	}
}

func TestAdoptOfNilSaysToHandOverAClient(t *testing.T) {
	emptyRegistry(t)
	Register("any", adopter[any]{})
	_, err := Adopt(nil)
	wantError(t, err, "client is nil", "hand over the client")
}

func TestAdoptReturnsTheErrorOfTheDriverThatTakesTheType(t *testing.T) {
	emptyRegistry(t)
	cause := errors.New("the client is nil")
	Register("a", adopter[*bytes.Buffer]{fail: cause})
	Register("b", adopter[fmt.Stringer]{})
	_, err := Adopt((*bytes.Buffer)(nil))
	wantError(t, err, "adopt *bytes.Buffer", `driver "a"`, cause.Error())
	if !errors.Is(err, cause) {
		t.Errorf("the error is %q, want it to wrap the driver's", err)
	}
}

func TestAdoptOfATypeThatNoDriverTakesSaysWhatToDo(t *testing.T) {
	emptyRegistry(t)
	addKnown(t, "nethttp", "net/http")
	anonymous := []int{1}
	_, err := Adopt(anonymous)
	wantError(t, err, "type []int", "registered are none", "import the adapter for it, or implement driver.Evaler")
	for _, k := range known {
		wantError(t, err, fmt.Sprintf("%q for %s", adapterPath+k.name, k.client))
	}

	Register("buffer", adopter[*bytes.Buffer]{})
	pointer := &http.Client{}
	for _, client := range []any{http.Client{}, pointer, &pointer, &httptest.Server{}} {
		_, err = Adopt(client)
		wantError(t, err, fmt.Sprintf("type %T", client), "registered are buffer", `add: import _ "`+adapterPath+`nethttp", and hand over what it takes`)
	}
	type wrapper struct {
		sync.Mutex
		*http.Client
	}
	_, err = Adopt(&wrapper{Client: pointer})
	wantError(t, err, "type *driver.wrapper", `add: import _ "`+adapterPath+`nethttp"`)

	former["net/mail"] = "github.com/redis/rueidis"
	defer delete(former, "net/mail")
	_, err = Adopt(&mail.Address{})
	wantError(t, err, "type *mail.Address", "net/mail is published as github.com/redis/rueidis now")

	// Not everything that begins with the path is of the package.
	addKnown(t, "enc", "encoding/js")
	_, err = Adopt(&json.Decoder{})
	wantError(t, err, "type *json.Decoder", "import the adapter for it")

	Register("nethttp", adopter[http.Client]{})
	_, err = Adopt(pointer)
	wantError(t, err, "type *http.Client", "registered are buffer, nethttp", `driver "nethttp" takes other types of that package: hand over what it takes`)
}

func TestAdoptOfAnEvalerSaysThatItNeedsNoAdapter(t *testing.T) {
	emptyRegistry(t)
	_, err := Adopt(Invalid(errors.New("any")))
	wantError(t, err, "type driver.invalid", "it is a driver.Evaler already: hand it to leasecache.New")
}

func TestAdoptReportsAnEvalerThatIsInvalid(t *testing.T) {
	emptyRegistry(t)
	cause := errors.New("the client is a pipeline")
	Register("a", invalidAdopter{cause})
	e, err := Adopt(1)
	wantError(t, err, "adopt int", `driver "a"`, cause.Error())
	if e != nil || !errors.Is(err, cause) {
		t.Errorf("Adopt = %v, %v; want the cause alone", e, err)
	}
}

// invalidAdopter is a Driver that takes every client and can use none.
type invalidAdopter struct{ err error }

func (invalidAdopter) Open(string) (Evaler, error) { return nil, nil }

func (a invalidAdopter) Adopt(any) (Evaler, bool, error) { return Invalid(a.err), true, nil }

func TestAPackageIsToldByWholePartsOfItsPath(t *testing.T) {
	for _, tt := range []struct {
		pkg, path string
		want      bool
	}{
		{"github.com/redis/rueidis", "github.com/redis/rueidis", true},
		{"github.com/redis/rueidis/rueidishook", "github.com/redis/rueidis", true},
		{"github.com/redis/rueidisx", "github.com/redis/rueidis", false},
		{"github.com/redis", "github.com/redis/rueidis", false},
		{"", "github.com/redis/rueidis", false},
	} {
		if got := within(tt.pkg, tt.path); got != tt.want {
			t.Errorf("within(%q, %q) = %v", tt.pkg, tt.path, got)
		}
	}
	for path, now := range former {
		if !slices.ContainsFunc(known, func(k adapter) bool { return k.client == now }) {
			t.Errorf("%s became %s, which has no adapter", path, now)
		}
	}
}

func TestTheRegistryMayBeUsedConcurrently(t *testing.T) {
	emptyRegistry(t)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			Register(fmt.Sprint("driver", i), adopter[int]{})
			if _, err := Open(fmt.Sprint("driver", i), ""); err != nil {
				t.Error(err)
			}
			if _, err := Adopt(i); err != nil {
				t.Error(err)
			}
			Drivers()
		})
	}
	wg.Wait()
	if n := len(Drivers()); n != 20 {
		t.Errorf("%d drivers are registered", n)
	}
}

func TestInvalidFailsEveryCallWithItsErrorAndSendsNothing(t *testing.T) {
	cause := errors.New("the client is nil")
	e := Invalid(cause)
	if err := e.(Validator).Validate(); !errors.Is(err, cause) {
		t.Errorf("Validate: %v", err)
	}
	_, err := e.Eval(t.Context(), NewScript("s", "return 1"), []string{"k"}, nil)
	if !errors.Is(err, cause) || !errors.Is(err, ErrNotSent) {
		t.Errorf("Eval: %v, want the cause and ErrNotSent", err)
	}
	for _, has := range []bool{
		is[Getter](e), is[Bounder](e), is[Pinger](e), is[Closer](e),
	} {
		if has {
			t.Error("Invalid has an ability beside Validator")
		}
	}
}

func is[T any](e Evaler) bool {
	_, ok := e.(T)
	return ok
}

func TestAScriptCarriesTheDigestOfItsSource(t *testing.T) {
	s := NewScript("name", "return 1")
	if s.Name() != "name" || s.Source() != "return 1" || s.SHA1() != "e0e1f9fabfc9d4800c877a703b823ac0578ff8db" {
		t.Errorf("NewScript = %q, %q, %q", s.Name(), s.Source(), s.SHA1())
	}
}
