//go:build !race

package explore_test

// budget 0 is what the scenarios say.
const budget = 0
