// Package chaos runs operators and agents as real processes against a real kube-apiserver and etcd, lets everything go wrong
// that can, and then judges what is left: was anything done twice, lost, wrongly called Failed, or left Ambiguous for no
// reason. README.md says what is injected, what is judged and how to run it.
//
// Run is the whole story in order; each file beside it is one part of it:
//
//	plan.go       what agents are given to do, from the seed
//	processes.go  operators and agents as processes that are killed, stopped and started again
//	faults.go     what goes wrong with one request
//	points.go     at which writes of the protocol an operator is killed or stopped
//	schedule.go   what goes wrong with everybody at once: outages, torn watches, partitions, quotas
//	stages.go     what goes wrong at a stage of an agent, and what the remote does wrong
//	people.go     who approves, and who resolves what is Ambiguous
//	control.go    the positive control: what the judge must report
//	loss.go       records that are lost, after everything else
//	report.go     what is printed and written
package chaos
