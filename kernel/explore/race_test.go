//go:build race

package explore_test

// budget is how many states of each scenario are looked at. The race detector makes it many times slower, and there is no
// goroutine to find anything in.
const budget = 2000
