package receipt

import (
	"errors"
	"math/big"
	"testing"
)

func TestFoldFindsEveryReceiptAfterItsStart(t *testing.T) {
	whole := chain(t, 5)
	f := NewFold(whole[1].Link())
	if f.Head() != whole[1].Link() || f.From() != whole[1].Link() {
		t.Fatalf("an empty fold from %s has head %s", whole[1].Link(), f.Head())
	}
	for _, e := range whole[2:] {
		if err := f.Add(e); err != nil {
			t.Fatal(err)
		}
		if f.Head() != e.Link() {
			t.Errorf("head %s after receipt %s", f.Head(), e.Link())
		}
	}
	for i, e := range whole {
		id, err := IdentityOf(e)
		if err != nil {
			t.Fatal(err)
		}
		got, found := f.Find(id)
		if i < 2 && found {
			t.Errorf("%s was found, but the fold starts after it", id)
		}
		if i >= 2 && got != e.Link() {
			t.Errorf("Find(%s) = %s, %v; want %s", id, got, found, e.Link())
		}
	}
	if f.From() != whole[1].Link() {
		t.Errorf("the start moved to %s", f.From())
	}
}

func TestFoldRefuses(t *testing.T) {
	whole := chain(t, 5)
	folded := whole[:3]
	third, err := IdentityOf(whole[2])
	if err != nil {
		t.Fatal(err)
	}
	second, err := Build(whole[2].Link(), map[string]any{
		"kind": third.Kind, "subject_uid": third.SubjectUID, "ordinal": big.NewInt(third.Ordinal), "other": "content",
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		from Link
		add  Entry
		want Reason
	}{
		"a gap":                                  {Start(), whole[4], Gap},
		"a receipt of another history":           {Start(), extend(t, Link{3, whole[3].Hash}, 1, "other")[0], Fork},
		"another receipt at a seq folded before": {Start(), extend(t, whole[0].Link(), 1, "other")[0], Fork},
		"another receipt at the head":            {Start(), extend(t, whole[1].Link(), 1, "other")[0], Fork},
		"another receipt at the start":           {whole[1].Link(), extend(t, whole[0].Link(), 1, "other")[0], Fork},
		"a second receipt of one identity":       {Start(), second, SecondReceipt},
		"an altered document":                    {Start(), altered(t, whole[3], set("decision", "allow")), Altered},
		"a document without hash":                {Start(), Entry{4, "", whole[3].Document}, Altered},
		"a document under another seq":           {Start(), Entry{5, whole[3].Hash, whole[3].Document}, Altered},
		"a document that is no object":           {Start(), rehashed(Entry{Seq: 4, Document: "[]"}), Altered},
		"a document without identity": {
			Start(), rehashed(Entry{Seq: 4, Document: `{"prev_hash":"` + whole[2].Hash + `","seq":4}`}), Unidentified,
		},
		"a receipt before the start": {whole[1].Link(), whole[0], BeforeStart},
		"a receipt with seq 0":       {Start(), rehashed(Entry{Seq: 0, Document: `{"seq":0}`}), BeforeStart},
	} {
		t.Run(name, func(t *testing.T) {
			f := NewFold(tc.from)
			for _, e := range folded[tc.from.Seq:] {
				if err := f.Add(e); err != nil {
					t.Fatal(err)
				}
			}
			err := f.Add(tc.add)
			var refused *FoldError
			if !errors.As(err, &refused) || refused.Reason != tc.want || refused.Seq != tc.add.Seq || refused.Head != whole[2].Link() {
				t.Fatalf("error %v, want a FoldError %s of receipt %d at head %s", err, tc.want, tc.add.Seq, whole[2].Link())
			}
			if f.Head() != whole[2].Link() {
				t.Errorf("the refused receipt moved the head to %s", f.Head())
			}
			if got, ok := f.Find(third); !ok || got != whole[2].Link() {
				t.Errorf("the refused receipt changed what %s has to %s", third, got)
			}
			if err := f.Add(whole[3]); err != nil {
				t.Errorf("the fold takes nothing any more: %v", err)
			}
		})
	}
}

// The same receipt read twice proves the same; only the exact one counts as the same.
func TestFoldTakesARepeatedReceiptAsRead(t *testing.T) {
	whole := chain(t, 4)
	f := NewFold(whole[0].Link())
	for _, e := range []Entry{whole[0], whole[1], whole[2], whole[1], whole[2], whole[0]} {
		if err := f.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	if f.Head() != whole[2].Link() {
		t.Errorf("head %s, want %s", f.Head(), whole[2].Link())
	}
}

// Two writers with one thing to say: the one whose create lost folds the winner's receipt in and finds that there is
// nothing left to say.
func TestAppendRule(t *testing.T) {
	d := actionDocument()
	stored := chain(t, 3)
	late, winner := NewFold(Start()), NewFold(Start())
	for _, e := range stored {
		if err := errors.Join(late.Add(e), winner.Add(e)); err != nil {
			t.Fatal(err)
		}
	}
	if _, found := late.Find(d.Identity()); found {
		t.Fatal("the receipt is there before it was written")
	}
	e, err := d.Entry(winner.Head())
	if err != nil {
		t.Fatal(err)
	}
	d.Message = "as the late one puts it"
	own, err := d.Entry(late.Head())
	if err != nil {
		t.Fatal(err)
	}
	if Name("payments", own.Seq) != Name("payments", e.Seq) {
		t.Fatal("the two would not collide")
	}
	if err := late.Add(e); err != nil {
		t.Fatal(err)
	}
	if got, found := late.Find(d.Identity()); !found || got != e.Link() {
		t.Errorf("after the collision the fold finds %s, %v; want %s", got, found, e.Link())
	}
	again, err := d.Entry(late.Head())
	if err != nil {
		t.Fatal(err)
	}
	var refused *FoldError
	if err := late.Add(again); !errors.As(err, &refused) || refused.Reason != SecondReceipt {
		t.Errorf("a second receipt of %s was folded: %v", d.Identity(), err)
	}
}
