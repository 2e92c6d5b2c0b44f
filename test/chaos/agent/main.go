// Command agent is an agent of a chaos run, a process of its own that may be killed at any time. It takes work from the desk
// of the run and does it by the SDK, as any agent would; what it tells the desk on the way, a real agent would not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/test/chaos/desk"
	"ctrlrun.dev/operator/test/chaos/remote"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run() error {
	name := flag.String("name", "", "of this agent, for the desk")
	server := flag.String("server", "", "URL of the apiserver; it knows who this is by the connection")
	namespace := flag.String("namespace", "", "to work in")
	url := flag.String("desk", "", "URL of the desk")
	workers := flag.Int("workers", 1, "how much it does at once")
	flag.Parse()
	sdk, err := client.New(&rest.Config{Host: *server, QPS: -1}, *namespace)
	if err != nil {
		return err
	}
	a := &agent{sdk: sdk, desk: desk.Client{URL: *url, Agent: *name}}
	var all sync.WaitGroup
	for range *workers {
		all.Go(func() { a.work(context.Background()) })
	}
	all.Wait()
	return nil
}

type agent struct {
	sdk  *client.Client
	desk desk.Client
}

// work takes one piece of work after the other, until the desk is gone.
func (a *agent) work(ctx context.Context) {
	for {
		item, found, err := a.desk.Take(ctx)
		switch {
		case err != nil:
			fmt.Fprintln(os.Stderr, "error:", err)
			return
		case found:
			a.do(ctx, item)
		default:
			time.Sleep(200 * time.Millisecond)
		}
	}
}

// do is one piece of work from the proposal to its end.
func (a *agent) do(ctx context.Context, item desk.Item) {
	waiting, cancel := context.WithTimeout(ctx, item.Patience)
	defer cancel()
	p := desk.Progress{Work: item.Work}
	call, err := a.sdk.Propose(waiting, client.Proposal{ActionType: item.ActionType, Arguments: item.Arguments, LeaseDuration: item.Lease})
	if err != nil {
		a.tell(ctx, p, desk.StageEnded, err)
		return
	}
	p.Action, p.ActionUID, p.ClaimID = call.Action().Name, string(call.Action().UID), call.ClaimID()
	a.tell(ctx, p, desk.StageProposed, nil)
	execute := func(ctx context.Context, x client.Execution) (any, error) {
		sent := remote.CallOf(x, os.Getpid(), item.Work)
		p.EffectKey, p.Attempt = sent.EffectKey, sent.Attempt
		a.tell(ctx, p, desk.StageAdmitted, nil)
		err := remote.Send(ctx, item.Remote, sent)
		p.Result = client.ResultOf(err)
		// The lease may be over by now; what is told of it does not depend on that.
		a.tell(context.WithoutCancel(ctx), p, desk.StageExecuted, nil)
		return nil, err
	}
	call.Progress = func(stage client.Stage, _ *v1alpha1.Action) {
		if stage == client.StageReported {
			a.tell(ctx, p, desk.StageReported, nil)
		}
	}
	_, err = call.Execute(waiting, execute)
	p.State, p.Unsaid = call.Action().Status.State, unsaid(err)
	a.tell(ctx, p, desk.StageEnded, err)
}

// unsaid reports whether an agent stopped waiting and could not say that it will not start, so that it may be admitted yet.
func unsaid(err error) bool {
	var waiting *client.WaitingError
	var unknown *client.UnknownError // it did execute, and waited for the end
	return errors.As(err, &waiting) && !waiting.Withdrawn && !errors.As(err, &unknown)
}

// tell says how far it has come. Whether the desk hears it changes nothing about the work.
func (a *agent) tell(ctx context.Context, p desk.Progress, stage desk.Stage, end error) {
	p.Stage = stage
	if end != nil {
		p.Error = end.Error()
	}
	if err := a.desk.Tell(ctx, p); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
	}
}
