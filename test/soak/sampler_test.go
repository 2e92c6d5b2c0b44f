package main

import "testing"

func TestResidentBytes(t *testing.T) {
	got, err := residentBytes([]byte("Name:\tctrlrun-operator\nVmHWM:\t  90000 kB\nVmRSS:\t   52340 kB\nRssAnon:\t 100 kB\n"))
	if err != nil || got != 52340*1024 {
		t.Errorf("got %v, %v", got, err)
	}
	for _, status := range []string{"", "Name:\tzombie\nState:\tZ\n", "VmRSS:\tmany kB\n"} {
		if got, err := residentBytes([]byte(status)); err == nil {
			t.Errorf("%q gives %v and no error", status, got)
		}
	}
}

func TestMetric(t *testing.T) {
	scrape := []byte("# HELP go_goroutines Number\n# TYPE go_goroutines gauge\ngo_goroutines_total 9\ngo_goroutines 131\n" +
		"go_memstats_heap_alloc_bytes 2.5e+07\nbad NaN\n")
	for name, want := range map[string]float64{"go_goroutines": 131, "go_memstats_heap_alloc_bytes": 25e6} {
		if got, err := metric(scrape, name); err != nil || got != want {
			t.Errorf("%s is %v, %v, want %v", name, got, err, want)
		}
	}
	for _, name := range []string{"go", "goroutines", "bad"} {
		if got, err := metric(scrape, name); err == nil {
			t.Errorf("%s gives %v and no error", name, got)
		}
	}
}
