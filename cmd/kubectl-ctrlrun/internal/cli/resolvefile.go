package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/effect"
)

const (
	// maxReason and maxEvidence are the bounds of a Resolution, in characters.
	maxReason   = 1024
	maxEvidence = 2048
	// stating is how many Resolutions are created at once.
	stating = 16
	// verdictInterval is how often the verdicts of a file's Resolutions are read.
	verdictInterval = 500 * time.Millisecond
)

// answerKeys are the keys of an answer that say something. The others of a line of `effects -o jsonl` may stand beside them.
var (
	answerKeys = []string{"effect", "key", "namespace", "attempt", "receiptHash", "result", "reason", "evidence"}
	toldKeys   = []string{"actionType", "action", "agent", "user", "state", "cause", "since", "token", "receipt", "lateOutcome", "resolutionsRequired", "arguments"}
)

// readAnswers reads the answers of a file: lines of JSON, or a YAML list. Everything that is wrong with it is one error, so
// that a long file is corrected at once.
func (a *app) readAnswers(file string) ([]resolving, error) {
	data, err := a.readInput(file)
	if err != nil {
		return nil, err
	}
	read := parseAnswerList
	if trimmed := bytes.TrimSpace(data); len(trimmed) > 0 && trimmed[0] == '{' {
		read = parseAnswerLines
	}
	answers, problems := read(data)
	problems = append(problems, duplicates(answers)...)
	if len(problems) == 0 && len(answers) == 0 {
		problems = []string{"line 1: there are no answers in it"}
	}
	if len(problems) > 0 {
		name := inputName(file)
		return nil, exit.Errorf(exit.Failure, "nothing was stated: %s in %s\n%s: %s", count(len(problems), "mistake"), name, name,
			strings.Join(problems, "\n"+name+": "))
	}
	return answers, nil
}

// parseAnswerLines reads one answer a line, as `effects -o jsonl` writes them with the answer added.
func parseAnswerLines(data []byte) (answers []resolving, problems []string) {
	number := 0
	for text := range bytes.Lines(data) {
		number++
		text = bytes.TrimSpace(text)
		if len(text) == 0 {
			continue
		}
		value, err := canonical.Parse(text)
		members, ok := value.(map[string]any)
		if err != nil || !ok {
			if err == nil {
				err = errors.New("not a JSON object")
			}
			problems = append(problems, fmt.Sprintf("line %d: %v", number, err))
			continue
		}
		answer, wrong := answerOf(number, members)
		for _, err := range wrong {
			problems = append(problems, fmt.Sprintf("line %d: %v", number, err))
		}
		if len(wrong) == 0 {
			answers = append(answers, answer)
		}
	}
	return answers, problems
}

// parseAnswerList reads a YAML list of answers.
func parseAnswerList(data []byte) (answers []resolving, problems []string) {
	root, err := documentRoot(data)
	if err != nil {
		return nil, []string{err.Error()}
	}
	if root.Kind != yaml.SequenceNode || len(root.Content) == 0 {
		return nil, []string{fmt.Sprintf("line %d: expected a list of answers, or a JSON object on each line", root.Line)}
	}
	for _, node := range root.Content {
		answer, wrong := answerOfNode(node)
		for _, err := range wrong {
			problems = append(problems, err.Error())
		}
		if len(wrong) == 0 {
			answers = append(answers, answer)
		}
	}
	return answers, problems
}

func answerOfNode(node *yaml.Node) (resolving, []error) {
	if node.Kind != yaml.MappingNode {
		return resolving{}, []error{fmt.Errorf("line %d: expected a mapping of keys to values", node.Line)}
	}
	var wrong []error
	members := map[string]any{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		_, again := members[key.Value]
		switch {
		case again:
			wrong = append(wrong, fmt.Errorf("line %d: key %q stands twice", key.Line, key.Value))
		case slices.Contains(toldKeys, key.Value):
			members[key.Value] = nil
		case !slices.Contains(answerKeys, key.Value):
			wrong = append(wrong, fmt.Errorf("line %d: unknown key %q: use %s", key.Line, key.Value, strings.Join(answerKeys, ", ")))
		case value.Kind != yaml.ScalarNode:
			members[key.Value] = value // which is no text
		case value.Tag == "!!null":
			members[key.Value] = nil
		case key.Value == "attempt":
			n, ok := new(big.Int).SetString(value.Value, 10)
			if members[key.Value] = any(n); !ok {
				members[key.Value] = value.Value
			}
		default:
			// People write text without quotes, also where a YAML reader sees a date or a number in it.
			members[key.Value] = value.Value
		}
	}
	answer, more := answerOf(node.Line, members)
	for _, err := range more {
		wrong = append(wrong, fmt.Errorf("line %d: %w", node.Line, err))
	}
	return answer, wrong
}

// answerOf checks one answer for everything that can be known without asking the cluster, and says all that is wrong with it.
func answerOf(number int, members map[string]any) (resolving, []error) {
	r := resolving{line: number}
	texts := map[string]*string{
		"effect": &r.effect, "key": &r.key, "namespace": &r.namespace, "receiptHash": &r.receiptHash, "reason": &r.reason, "evidence": &r.evidence,
	}
	var word string
	texts["result"] = &word
	var wrong []error
	unread := map[string]bool{} // is there, but not text: that it is missing would be one mistake said twice
	for _, key := range sortedKeys(members) {
		value := members[key]
		target, text := texts[key]
		switch {
		case slices.Contains(toldKeys, key):
		case !text && key != "attempt":
			wrong = append(wrong, fmt.Errorf("unknown key %q: use %s", key, strings.Join(answerKeys, ", ")))
		case value == nil: // the same as not there
		case key == "attempt":
			n, ok := value.(*big.Int)
			if !ok || !n.IsInt64() || n.Sign() <= 0 {
				wrong = append(wrong, errors.New("attempt must be a whole number from 1"))
				continue
			}
			r.attempt = n.Int64()
		default:
			var ok bool
			if *target, ok = value.(string); !ok {
				unread[key] = true
				wrong = append(wrong, fmt.Errorf("%s must be text", key))
			}
		}
	}
	if !unread["result"] {
		var err error
		if r.result, err = resultOf(word); err != nil {
			wrong = append(wrong, err)
		}
	}
	return r.named(wrong, unread)
}

// resultOf reads a result in the words of the command line, committed and not-executed, or in those of the API.
func resultOf(word string) (v1alpha1.ResolutionResult, error) {
	switch strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(word)) {
	case "committed":
		return v1alpha1.ResolutionCommitted, nil
	case "notexecuted":
		return v1alpha1.ResolutionNotExecuted, nil
	case "":
		return "", errors.New("there is no result: add result, committed or not-executed, or leave the line out")
	}
	return "", fmt.Errorf("result is committed or not-executed, not %q", word)
}

// named settles which effect is meant, and checks the rest. wrong is what was found before, of which unread keys are a part.
func (r resolving) named(wrong []error, unread map[string]bool) (resolving, []error) {
	switch byKey := action.EffectName(r.key); {
	case unread["effect"], unread["key"]:
	case r.effect == "" && r.key == "":
		wrong = append(wrong, errors.New("there is no effect: add effect, its name, or key"))
	case r.effect == "":
		r.effect = byKey
	case r.key != "" && r.effect != byKey:
		wrong = append(wrong, fmt.Errorf("effect %s has another key than %q: one of them was changed", r.effect, r.key))
	}
	for _, problem := range r.problems() {
		if !unread[problem.key] {
			wrong = append(wrong, problem.err)
		}
	}
	return r, wrong
}

// duplicates names the answers to an effect that has one already. Nobody can say which of them is meant.
func duplicates(answers []resolving) []string {
	first := map[string]int{}
	var problems []string
	for _, r := range answers {
		at := r.namespace + "/" + r.effect
		if earlier, ok := first[at]; ok {
			problems = append(problems, fmt.Sprintf("line %d: effect %s is answered by line %d already", r.line, r.effect, earlier))
			continue
		}
		first[at] = r.line
	}
	return problems
}

// statingAnswer is how far one answer of a file has come.
type statingAnswer struct {
	resolving
	effect     *v1alpha1.Effect
	quoted     *quotedReceipt
	done       string // how it is resolved already, in words
	err        error  // why it is not
	resolution *v1alpha1.Resolution
	told       bool // its end was printed
	recorded   bool // others have to say the same; err says how many
}

func (r *statingAnswer) ready() bool { return r.err == nil && r.done == "" }

// resolveFile states all answers of a file. It can be started again after whatever stopped it: what is resolved already is
// reported, and is no error.
func (a *app) resolveFile(ctx context.Context, s *session, answers []resolving, mode resolveMode) error {
	if mode != resolveDryRun {
		if err := a.refuseVoid(ctx, s); err != nil {
			return err
		}
	}
	all, err := s.planAnswers(ctx, answers)
	if err != nil {
		return err
	}
	if mode == resolveDryRun {
		a.printPlan(all)
		return a.summary(all, "to be stated", "refused")
	}
	if err := a.confirmPlan(s, all, mode); err != nil {
		return err
	}
	for _, r := range all {
		a.printDone(r)
	}
	s.stateAll(ctx, all)
	a.awaitVerdicts(ctx, s, all)
	return a.summary(all, "resolved now", "not resolved")
}

// planAnswers looks up everything the answers are about.
func (s *session) planAnswers(ctx context.Context, answers []resolving) ([]*statingAnswer, error) {
	ambiguous := map[types.NamespacedName]*v1alpha1.Effect{}
	read, may := map[string]bool{}, map[string]verdict{}
	quotes := s.quotes()
	var all []*statingAnswer
	for _, answer := range answers {
		r := &statingAnswer{resolving: answer}
		all = append(all, r)
		if r.namespace == "" {
			r.namespace = s.Namespace()
		}
		if !read[r.namespace] {
			read[r.namespace] = true
			if err := s.readAmbiguous(ctx, r.namespace, ambiguous); err != nil {
				return nil, err
			}
		}
		r.effect = ambiguous[types.NamespacedName{Namespace: r.namespace, Name: r.resolving.effect}]
		if err := s.planAnswer(ctx, r, quotes, may); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// readAmbiguous reads the ambiguous effects of a namespace by one list.
func (s *session) readAmbiguous(ctx context.Context, namespace string, into map[types.NamespacedName]*v1alpha1.Effect) error {
	var page v1alpha1.EffectList
	return s.eachPage(ctx, &page, func() error {
		for i := range page.Items {
			into[kube.ObjectKeyFromObject(&page.Items[i])] = page.Items[i].DeepCopy()
		}
		return nil
	}, notCanary, kube.InNamespace(namespace), kube.MatchingFields{"status.state": string(v1alpha1.EffectAmbiguous)})
}

// planAnswer says of one answer whether it is to be stated. An error is one that stops everything.
func (s *session) planAnswer(ctx context.Context, r *statingAnswer, quotes *quotes, may map[string]verdict) error {
	if r.effect == nil {
		effect := &v1alpha1.Effect{}
		err := s.kube.Get(ctx, kube.ObjectKey{Namespace: r.namespace, Name: r.resolving.effect}, effect)
		if apierrors.IsNotFound(err) && !missingKind(err) {
			r.err = exit.Errorf(exit.Failure, "there is no such effect in namespace %s", r.namespace)
			return nil
		}
		if err != nil {
			return explain(err)
		}
		r.effect = effect
	}
	status := effectStatus(r.effect)
	if status.State != v1alpha1.EffectAmbiguous || r.attempt != 0 && r.attempt != status.Attempt {
		r.done, r.err = r.settled(r.effect)
		return nil
	}
	quoted, err := quotes.of(ctx, r.effect)
	switch {
	case exit.Of(err) == exit.Waiting:
		r.err = err
		return nil
	case err != nil:
		return err
	case r.receiptHash != "" && r.receiptHash != quoted.ref.Hash:
		r.err = exit.Errorf(exit.Failure, "something happened since: receipt %s says now that it is ambiguous; look into it again", quoted.ref.Name)
		return nil
	}
	r.quoted = quoted
	at := r.namespace + "/" + quoted.actionType
	if _, asked := may[at]; !asked {
		if may[at], err = s.mayOnIn(ctx, r.namespace, "resolve", quoted.actionType); err != nil {
			return err
		}
	}
	if !may[at].allowed {
		r.err = exit.Errorf(exit.Refused, "you may not resolve %s in namespace %s: you lack %s", quoted.actionType, r.namespace, may[at].missing)
	}
	return nil
}

// settled judges an answer about an attempt that is not ambiguous any more: it is done if the attempt was resolved as the
// answer says.
func (r *resolving) settled(record *v1alpha1.Effect) (done string, err error) {
	status := effectStatus(record)
	attempt := r.attempt
	if attempt == 0 {
		attempt = status.Attempt
	}
	want := map[v1alpha1.ResolutionResult]string{v1alpha1.ResolutionCommitted: effect.ResolvedCommitted, v1alpha1.ResolutionNotExecuted: effect.ResolvedNotExecuted}
	for _, line := range slices.Backward(status.History) {
		if line.Attempt != attempt {
			continue
		}
		if line.Result == want[r.result] {
			if status.Resolution != nil && status.Resolution.Name == line.Resolution {
				by := byObserver(status.Resolution.Resolver, status.Resolution.Observer)
				if n := len(status.Resolution.Resolvers); n > 1 {
					by += fmt.Sprintf(" and %d more", n-1)
				}
				return "already resolved by " + by, nil
			}
			return "already resolved", nil
		}
		if line.Result != effect.BecameAmbiguous {
			return "", exit.Errorf(exit.Failure, "attempt %d is not ambiguous, it is %s; what you state is not what is recorded", attempt, line.Result)
		}
	}
	if attempt != status.Attempt {
		return "", exit.Errorf(exit.Failure, "it is at attempt %d, not %d: look into it again", status.Attempt, attempt)
	}
	return "", exit.Errorf(exit.Failure, "it is %s, not Ambiguous: there is nothing to resolve", status.State)
}

// printPlan shows what would be stated, one line for each answer.
func (a *app) printPlan(all []*statingAnswer) {
	t := a.table("LINE", "NAMESPACE", "EFFECT", "ATTEMPT", "TYPE", "STATE", "RESULT", "REASON")
	for _, r := range all {
		attempt, actionType, state := "", "", "to be stated"
		if r.effect != nil {
			attempt, actionType = fmt.Sprint(effectStatus(r.effect).Attempt), effectStatus(r.effect).ActionType
		}
		switch {
		case r.err != nil:
			state = "refused"
		case r.done != "":
			state = r.done
		}
		t.row(fmt.Sprint(r.line), r.namespace, r.resolving.effect, orDash(attempt), orDash(actionType), state, string(r.result), r.reason)
	}
	t.flush()
}

// confirmPlan shows what is about to be stated, and asks once.
func (a *app) confirmPlan(s *session, all []*statingAnswer, mode resolveMode) error {
	type group struct{ namespace, actionType, result string }
	groups, ready := map[group]int{}, 0
	for _, r := range all {
		if r.ready() {
			ready++
			groups[group{r.namespace, r.quoted.actionType, string(r.result)}]++
		}
	}
	if ready == 0 {
		return nil
	}
	t := a.fieldsOn(a.streams.ErrOut)
	t.row("Cluster", s.cluster)
	t.row("You", s.user.Username)
	t.flush()
	rows := a.tableOn(a.streams.ErrOut, "NAMESPACE", "TYPE", "RESULT", "EFFECTS")
	order := slices.SortedFunc(maps.Keys(groups), func(a, b group) int {
		return strings.Compare(a.namespace+"\x00"+a.actionType+"\x00"+a.result, b.namespace+"\x00"+b.actionType+"\x00"+b.result)
	})
	for _, g := range order {
		rows.row(g.namespace, g.actionType, g.result, fmt.Sprint(groups[g]))
	}
	rows.flush()
	if mode == resolveUnasked {
		return nil
	}
	return a.confirm(fmt.Sprintf("State this about %s?", count(ready, "effect")), "--yes, after looking at it with --dry-run=client")
}

// stateAll creates the Resolutions, a few at a time.
func (s *session) stateAll(ctx context.Context, all []*statingAnswer) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, stating)
	for _, r := range all {
		if !r.ready() {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if r.resolution, r.err = s.createResolution(ctx, r.effect, r.quoted, r.resolving); r.err != nil {
				r.err = stated(r.err)
			}
		})
	}
	wg.Wait()
}

// createResolution states one answer. The same statement of an earlier run is taken over, unless it was refused: then this is
// another try. So it is where the same person has said something since: their last word is what counts.
func (s *session) createResolution(ctx context.Context, effect *v1alpha1.Effect, quoted *quotedReceipt, r resolving) (*v1alpha1.Resolution, error) {
	attempt := effectStatus(effect).Attempt
	resolution := &v1alpha1.Resolution{
		ObjectMeta: metav1.ObjectMeta{Namespace: effect.Namespace},
		Spec: v1alpha1.ResolutionSpec{
			EffectRef:  v1alpha1.ObjectReference{Name: effect.Name, UID: effect.UID},
			Attempt:    attempt,
			ActionType: quoted.actionType,
			Result:     r.result,
			ReceiptRef: v1alpha1.ReceiptReference{Name: quoted.ref.Name, Hash: quoted.ref.Hash},
			Reason:     r.reason,
			Evidence:   r.evidence,
			Resolver:   s.user.Username,
		},
	}
	name := client.StatementName(fmt.Sprintf("%s.%d", effect.Name, attempt), s.user.Username)
	own := func(existing kube.Object) bool {
		have := existing.(*v1alpha1.Resolution)
		later := s.kube.Get(ctx, s.key(nextTry(name, have.Name)), &v1alpha1.Resolution{})
		// Names are not of one speaker alone.
		return apierrors.IsNotFound(later) && have.Spec.Resolver == s.user.Username && have.Spec.EffectRef == resolution.Spec.EffectRef && have.Spec.ReceiptRef == resolution.Spec.ReceiptRef &&
			have.Spec.Result == resolution.Spec.Result && !meta.IsStatusConditionFalse(have.Status.Conditions, v1alpha1.AcceptedCondition)
	}
	return resolution, s.CreateStatement(ctx, resolution, name, own)
}

// awaitVerdicts waits until the operator has judged every Resolution, and prints each verdict as it comes. It reads them by
// lists: one watch for each of hundreds would ask more of the apiserver. As long as verdicts come it goes on waiting.
func (a *app) awaitVerdicts(ctx context.Context, s *session, all []*statingAnswer) {
	open := map[string]map[types.UID]*statingAnswer{}
	for _, r := range all {
		if !r.ready() {
			a.printDone(r)
			continue
		}
		if open[r.namespace] == nil {
			open[r.namespace] = map[types.UID]*statingAnswer{}
		}
		open[r.namespace][r.resolution.UID] = r
	}
	last := time.Now()
	for len(open) > 0 && ctx.Err() == nil && time.Since(last) < acceptTimeout {
		for _, namespace := range sortedKeys(open) {
			n, err := a.readVerdicts(ctx, s, namespace, open[namespace])
			if n > 0 {
				last = time.Now()
			}
			for uid, r := range open[namespace] {
				if exit.Of(err) == exit.Refused {
					r.err = exit.Errorf(exit.Waiting, "%s was created, but you may not read whether it counts", r.resolution.Name)
					a.printDone(r)
					delete(open[namespace], uid)
				}
			}
			if len(open[namespace]) == 0 {
				delete(open, namespace)
			}
		}
		if len(open) > 0 {
			wait(ctx, verdictInterval)
		}
	}
	if len(open) == 0 {
		return
	}
	silence := s.silence(ctx)
	for _, namespace := range sortedKeys(open) {
		for _, r := range open[namespace] {
			r.err = exit.Errorf(exit.Waiting, "%s was created, but nobody has judged it: %s", r.resolution.Name, silence)
			a.printDone(r)
		}
	}
}

// readVerdicts takes out of open what was judged, and says how many that were.
func (a *app) readVerdicts(ctx context.Context, s *session, namespace string, open map[types.UID]*statingAnswer) (int, error) {
	judged := 0
	var page v1alpha1.ResolutionList
	err := s.eachPage(ctx, &page, func() error {
		for i := range page.Items {
			r := open[page.Items[i].UID]
			if r == nil {
				continue
			}
			condition := meta.FindStatusCondition(page.Items[i].Status.Conditions, v1alpha1.AcceptedCondition)
			if condition == nil {
				continue
			}
			switch condition.Status {
			case metav1.ConditionUnknown:
				r.recorded, r.err = true, exit.With(exit.Waiting, &openError{condition.Message})
			case metav1.ConditionFalse:
				r.err = exit.With(codeOfRefusal(condition.Reason), fmt.Errorf("%s does not count: %s: %s", r.resolution.Name, condition.Reason, condition.Message))
			}
			delete(open, r.resolution.UID)
			a.printDone(r)
			judged++
		}
		return nil
	}, kube.InNamespace(namespace))
	return judged, err
}

// printDone says how one answer ended: on stdout if its effect is resolved, or it is recorded, else on stderr.
func (a *app) printDone(r *statingAnswer) {
	switch {
	case r.told:
		return
	case r.recorded:
		a.println("recorded:", r.resolving.effect, string(r.result)+":", oneLine(r.err.Error()))
	case r.err != nil:
		a.note("line %d: %s: %s", r.line, displayLine(r.resolving.effect), oneLine(r.err.Error()))
	case r.done != "":
		a.println(displayLine(r.done)+":", r.resolving.effect, string(r.result))
	case r.resolution == nil:
		return
	default:
		a.println("resolved:", r.resolving.effect, string(r.result))
	}
	r.told = true
}

// summary counts, and is the error of those that came to nothing. If all of them have the same exit code it is that one.
func (a *app) summary(all []*statingAnswer, worked, failedTo string) error {
	var done, already, recorded int
	var failed []*statingAnswer
	for _, r := range all {
		switch {
		case r.err != nil:
			failed = append(failed, r)
			a.printDone(r)
			if r.recorded {
				recorded++
			}
		case r.done != "":
			already++
		default:
			done++
		}
	}
	others := ""
	if recorded > 0 {
		others = fmt.Sprintf("%d recorded, ", recorded)
	}
	a.note("%d %s, %d already resolved, %s%d %s", done, worked, already, others, len(failed)-recorded, failedTo)
	if len(failed) == 0 {
		return nil
	}
	if recorded == len(failed) {
		failedTo = "recorded, and others have to say the same"
	}
	code := exit.Of(failed[0].err)
	var lines []string
	for _, r := range failed {
		if exit.Of(r.err) != code {
			code = exit.Failure
		}
		lines = append(lines, fmt.Sprint(r.line))
	}
	return exit.Errorf(code, "%s %s: %s", count(len(failed), "answer"), failedTo, boundedList("line", lines))
}

// boundedList names what can be read at a glance, and counts the rest.
func boundedList(noun string, items []string) string {
	const most = 20
	if len(items) > most {
		return fmt.Sprintf("%ss %s and %d more", noun, strings.Join(items[:most], ", "), len(items)-most)
	}
	if len(items) == 1 {
		return noun + " " + items[0]
	}
	return noun + "s " + strings.Join(items, ", ")
}

// checkLength refuses what the apiserver would refuse, before anything is sent.
func checkLength(what, text string, most int) error {
	if n := utf8.RuneCountInString(text); n > most {
		return fmt.Errorf("the %s has %d characters, and %d are the limit", what, n, most)
	}
	return nil
}

// nextTry is the name after one of NAME, NAME.2, NAME.3.
func nextTry(name, taken string) string {
	n, err := strconv.Atoi(strings.TrimPrefix(taken, name+"."))
	if err != nil {
		n = 1
	}
	return fmt.Sprintf("%s.%d", name, n+1)
}
