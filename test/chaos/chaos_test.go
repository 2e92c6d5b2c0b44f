package chaos

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

var (
	actions = flag.Int("actions", 200, "how many proposals agents make")
	seed    = flag.Uint64("seed", 0, "of everything that is drawn; 0: another one each time")
	length  = flag.String("length", string(Short), "short, or long for a storm as long as there is work")
	output  = flag.String("report", "", "file for the report as JSON")
	keep    = flag.String("keep", "", "directory to keep logs and journal in; otherwise they are kept if the run fails")
)

// TestChaos: whatever goes wrong, nothing is done twice, nothing is lost, nothing that was done is called Failed, the chain
// verifies, and every Ambiguous attempt has a cause that was on record before.
func TestChaos(t *testing.T) {
	o := Options{Actions: *actions, Seed: *seed, Length: Length(*length), Dir: *keep, Out: os.Stdout}
	if o.Seed == 0 {
		o.Seed = uint64(time.Now().UnixNano() % 1_000_000)
	}
	if o.Dir == "" {
		dir, err := os.MkdirTemp("", "ctrlrun-chaos-")
		if err != nil {
			t.Fatal(err)
		}
		o.Dir = dir
	}
	t.Cleanup(func() {
		if t.Failed() || *keep != "" {
			t.Logf("logs, journal and report are in %s; this run's seed is %d", o.Dir, o.Seed)
			return
		}
		if err := os.RemoveAll(o.Dir); err != nil {
			t.Error(err)
		}
	})
	// Who interrupts a run is not left with its processes.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	report, err := Run(ctx, t, o)
	if err != nil {
		t.Error(err)
	}
	if err := report.Print(os.Stdout); err != nil {
		t.Error(err)
	}
	for _, path := range []string{o.Dir + "/report.json", *output} {
		if path == "" {
			continue
		}
		if err := report.Write(path); err != nil {
			t.Error(err)
		}
	}
	for _, p := range report.Problems() {
		t.Error(p)
	}
}
