package driver

import (
	"math"
	"strings"
	"testing"
)

func TestAReplyHasOneShape(t *testing.T) {
	type shape struct {
		kind   Kind
		n      int64
		isInt  bool
		s      string
		isStr  bool
		length int
	}
	for _, test := range []struct {
		name  string
		reply Reply
		want  shape
		print string
	}{
		{"the zero Reply", Reply{}, shape{kind: KindNil}, "nil"},
		{"nil", Nil(), shape{kind: KindNil}, "nil"},
		{"integer", Int(42), shape{kind: KindInt, n: 42, isInt: true}, "42"},
		{"zero", Int(0), shape{kind: KindInt, isInt: true}, "0"},
		{"smallest integer", Int(math.MinInt64), shape{kind: KindInt, n: math.MinInt64, isInt: true}, "-9223372036854775808"},
		{"string", Str("secret"), shape{kind: KindString, s: "secret", isStr: true}, "string of 6 bytes"},
		{"empty string", Str(""), shape{kind: KindString, isStr: true}, "string of 0 bytes"},
		{"digits", Str("42"), shape{kind: KindString, s: "42", isStr: true}, "string of 2 bytes"},
		{"empty list", List(), shape{kind: KindList}, "[]"},
		{"list", List(Int(1), Str("secret"), Nil(), List(Int(2))), shape{kind: KindList, length: 4}, "[1, string of 6 bytes, nil, [2]]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := shape{kind: test.reply.Kind(), length: test.reply.Len()}
			got.n, got.isInt = test.reply.Int()
			got.s, got.isStr = test.reply.Str()
			if got != test.want {
				t.Errorf("it is %+v, want %+v", got, test.want)
			}
			if p := test.reply.String(); p != test.print {
				t.Errorf("it prints %q, want %q", p, test.print)
			}
			if strings.Contains(test.reply.String(), "secret") {
				t.Error("it prints a user's value")
			}
		})
	}
}

func TestAnElementThatIsNotThereIsNil(t *testing.T) {
	list := List(Int(1), Str("b"))
	if n, ok := list.At(0).Int(); n != 1 || !ok {
		t.Errorf("element 0 is %v", list.At(0))
	}
	if s, ok := list.At(1).Str(); s != "b" || !ok {
		t.Errorf("element 1 is %v", list.At(1))
	}
	for _, i := range []int{-1, 2, math.MaxInt, math.MinInt} {
		if got := list.At(i); got.Kind() != KindNil {
			t.Errorf("element %d is %v", i, got)
		}
	}
	for _, r := range []Reply{Nil(), Int(1), Str("x"), List()} {
		if got := r.At(0); got.Kind() != KindNil {
			t.Errorf("element 0 of %v is %v", r, got)
		}
	}
}

func TestKindsHaveNames(t *testing.T) {
	for kind, want := range map[Kind]string{
		KindNil: "nil", KindInt: "integer", KindString: "string", KindList: "list", 42: "Kind(42)",
	} {
		if got := kind.String(); got != want {
			t.Errorf("Kind(%d) prints %q, want %q", uint8(kind), got, want)
		}
	}
}
