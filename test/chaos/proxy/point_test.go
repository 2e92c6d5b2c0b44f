package proxy

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const group = "ctrlrun.dev"

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		method, url string
		want        Request
	}{
		"create":              {"POST", "/apis/ctrlrun.dev/v1alpha1/namespaces/pay/actions", Request{Verb: "create", Group: group, Resource: "actions", Namespace: "pay"}},
		"create cluster-wide": {"POST", "/apis/ctrlrun.dev/v1alpha1/ledgers", Request{Verb: "create", Group: group, Resource: "ledgers"}},
		"dry run":             {"POST", "/apis/ctrlrun.dev/v1alpha1/namespaces/pay/actions?dryRun=All", Request{Verb: "create", Group: group, Resource: "actions", Namespace: "pay", DryRun: true}},
		"update":              {"PUT", "/apis/ctrlrun.dev/v1alpha1/namespaces/pay/effects/a", Request{Verb: "update", Group: group, Resource: "effects", Namespace: "pay", Name: "a"}},
		"update of a status":  {"PUT", "/apis/ctrlrun.dev/v1alpha1/namespaces/pay/actions/a/status", Request{Verb: "update", Group: group, Resource: "actions", Subresource: "status", Namespace: "pay", Name: "a"}},
		"cluster-wide status": {"PUT", "/apis/ctrlrun.dev/v1alpha1/ledgers/pay/status", Request{Verb: "update", Group: group, Resource: "ledgers", Subresource: "status", Name: "pay"}},
		"patch":               {"PATCH", "/api/v1/namespaces/pay/configmaps/a", Request{Verb: "patch", Resource: "configmaps", Namespace: "pay", Name: "a"}},
		"delete":              {"DELETE", "/api/v1/namespaces/pay/configmaps/a", Request{Verb: "delete", Resource: "configmaps", Namespace: "pay", Name: "a"}},
		"delete a collection": {"DELETE", "/api/v1/namespaces/pay/configmaps", Request{Verb: "deletecollection", Resource: "configmaps", Namespace: "pay"}},
		"get":                 {"GET", "/api/v1/namespaces/pay/configmaps/a", Request{Verb: "get", Resource: "configmaps", Namespace: "pay", Name: "a"}},
		"list":                {"GET", "/api/v1/namespaces/pay/configmaps?limit=5", Request{Verb: "list", Resource: "configmaps", Namespace: "pay"}},
		"list everywhere":     {"GET", "/apis/ctrlrun.dev/v1alpha1/actions?watch=false", Request{Verb: "list", Group: group, Resource: "actions"}},
		"watch":               {"GET", "/apis/ctrlrun.dev/v1alpha1/actions?allowWatchBookmarks=true&watch=true", Request{Verb: "watch", Group: group, Resource: "actions"}},
		"watch, in short":     {"GET", "/apis/ctrlrun.dev/v1alpha1/actions?watch=1", Request{Verb: "watch", Group: group, Resource: "actions"}},
		"watch of one": {"GET", "/apis/ctrlrun.dev/v1alpha1/namespaces/pay/actions?fieldSelector=metadata.name%3Da&watch=true",
			Request{Verb: "watch", Group: group, Resource: "actions", Namespace: "pay", Name: "a"}},
		"watch of all but one": {"GET", "/apis/ctrlrun.dev/v1alpha1/actions?fieldSelector=metadata.name%21%3Da&watch=true",
			Request{Verb: "watch", Group: group, Resource: "actions"}},
		"watch by another field": {"GET", "/apis/ctrlrun.dev/v1alpha1/effects?fieldSelector=status.state%3DAmbiguous&watch=true",
			Request{Verb: "watch", Group: group, Resource: "effects"}},
		"list of one": {"GET", "/apis/ctrlrun.dev/v1alpha1/actions?fieldSelector=metadata.name%3Da%2Cstatus.state%3DAdmitted",
			Request{Verb: "list", Group: group, Resource: "actions", Name: "a"}},
		"a selector that is none": {"GET", "/apis/ctrlrun.dev/v1alpha1/actions?fieldSelector=a&watch=true",
			Request{Verb: "watch", Group: group, Resource: "actions"}},
		"a namespace":          {"GET", "/api/v1/namespaces/pay", Request{Verb: "get", Resource: "namespaces", Namespace: "pay", Name: "pay"}},
		"namespaces":           {"GET", "/api/v1/namespaces", Request{Verb: "list", Resource: "namespaces"}},
		"of a namespace":       {"PUT", "/api/v1/namespaces/pay/finalize", Request{Verb: "update", Resource: "namespaces", Subresource: "finalize", Namespace: "pay", Name: "pay"}},
		"subresource of a pod": {"GET", "/api/v1/namespaces/pay/pods/a/log", Request{Verb: "get", Resource: "pods", Subresource: "log", Namespace: "pay", Name: "a"}},
		"groups":               {"GET", "/apis", Request{Verb: "get"}},
		"resources of a group": {"GET", "/apis/ctrlrun.dev/v1alpha1", Request{Verb: "get"}},
		"core resources":       {"GET", "/api/v1", Request{Verb: "get"}},
		"readiness":            {"GET", "/readyz", Request{Verb: "get"}},
		"root":                 {"GET", "/", Request{Verb: "get"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, parse(httptest.NewRequest(c.method, c.url, http.NoBody))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestPointOf holds what the suite's operator does not do, and what tells one write from its like.
func TestPointOf(t *testing.T) {
	ours := func(verb, resource, subresource, body string) Request {
		return Request{Verb: verb, Group: group, Resource: resource, Subresource: subresource, Body: []byte(body)}
	}
	status := func(resource, body string) Request { return ours("update", resource, "status", body) }
	for name, c := range map[string]struct {
		request Request
		want    string
	}{
		"the question": {status("actions", `{"status":{"state":"AwaitingApproval","timeline":[
			{"type":"ACTION_PROPOSED"},{"type":"POLICY_EVALUATED"},{"type":"APPROVAL_REQUESTED"}]}}`), PointPin},
		"the question, after an answer that did not count": {status("actions", `{"status":{"state":"AwaitingApproval","timeline":[
			{"type":"APPROVAL_REQUESTED"},{"type":"APPROVAL_INVALIDATED"}]}}`), PointPin},
		"a vote": {status("actions", `{"status":{"state":"AwaitingApproval","timeline":[
			{"type":"APPROVAL_REQUESTED"},{"type":"APPROVAL_GRANTED"}]}}`), PointWait},
		"a hold while people are asked": {status("actions", `{"status":{"state":"AwaitingApproval","reason":"caches_stale","timeline":[
			{"type":"APPROVAL_REQUESTED"},{"type":"ACTION_HELD"}]}}`), PointHold},
		"the end of a hold while people are asked": {status("actions", `{"status":{"state":"AwaitingApproval","timeline":[
			{"type":"APPROVAL_REQUESTED"},{"type":"ACTION_HELD"}]}}`), PointWait},
		"a hold before anything":            {status("actions", `{"status":{"reason":"admission_missing"}}`), PointHold},
		"a wait for the attempt before":     {status("actions", `{"status":{"reason":"waiting_for_holder"}}`), PointWait},
		"the end of a hold while claimable": {status("actions", `{"status":{"state":"Claimable","timeline":[{"type":"ACTION_CLAIMABLE"},{"type":"ACTION_HELD"}]}}`), PointWait},
		"claimable":                         {status("actions", `{"status":{"state":"Claimable","timeline":[{"type":"APPROVAL_GRANTED"},{"type":"ACTION_CLAIMABLE"}]}}`), PointClaimable},
		"admitted":                          {status("actions", `{"status":{"state":"Admitted","execution":{"claimID":"x"}}}`), PointAdmit},
		"ended":                             {status("actions", `{"status":{"state":"Expired","reason":"not_claimed"}}`), PointEnd},
		"finished without admission":        {status("actions", `{"status":{"state":"Expired","receiptRef":{"name":"r"}}}`), PointFinish},
		"finished":                          {status("actions", `{"status":{"state":"Committed","execution":{"claimID":"x"},"receiptRef":{"name":"r"}}}`), PointFinish},
		"resolved":                          {status("actions", `{"status":{"state":"Ambiguous","receiptRef":{"name":"r"},"conditions":[{"type":"Resolved","status":"True"}]}}`), PointResolved},

		"a proposal":               {ours("create", "actions", "", `{"spec":{"actionType":"a.b"}}`), PointPropose},
		"a canary action":          {ours("create", "actions", "", `{"metadata":{"labels":{"ctrlrun.dev/canary":"true"}}}`), "Action.canary"},
		"a proposal as a question": {Request{Verb: "create", Group: group, Resource: "actions", DryRun: true}, "Action.probe"},
		"a change of a record as a question": {
			Request{Verb: "update", Group: group, Resource: "effects", DryRun: true, Body: []byte(`{"status":{"state":"Committed"}}`)}, "Effect.probe"},

		"a canary effect":       {ours("create", "effects", "", `{"metadata":{"labels":{"ctrlrun.dev/canary":"true"}},"status":{"state":"Committed"}}`), "Effect.canary"},
		"a reservation":         {ours("create", "effects", "", `{"status":{"state":"Executing","attempt":1}}`), PointReserve},
		"an operator's own":     {ours("create", "effects", "", `{"status":{"state":"Reserved","attempt":1}}`), PointReserve},
		"a record made again":   {ours("create", "effects", "", `{"status":{"state":"Ambiguous","cause":"StatusMissing","loss":{"ordinal":1}}}`), PointLost},
		"the next attempt":      {ours("update", "effects", "", `{"status":{"state":"Executing","attempt":2,"history":[{"result":"not_executed"}]}}`), PointRenew},
		"an executor begins":    {ours("update", "effects", "", `{"status":{"state":"Executing","nonce":"n"}}`), PointBegin},
		"committed":             {ours("update", "effects", "", `{"status":{"state":"Committed","history":[{"result":"committed"}]}}`), PointSettle},
		"not executed":          {ours("update", "effects", "", `{"status":{"state":"Failed","history":[{"result":"not_executed"}]}}`), PointSettle},
		"unknown":               {ours("update", "effects", "", `{"status":{"state":"Ambiguous","cause":"ReportedUnknown","history":[{"result":"ambiguous"}]}}`), PointSettle},
		"a lease that is over":  {ours("update", "effects", "", `{"status":{"state":"Ambiguous","cause":"LeaseLapsed","history":[{"result":"ambiguous"}]}}`), PointSettle},
		"an orphan":             {ours("update", "effects", "", `{"status":{"state":"Failed","history":[{"result":"committed"},{"result":"never_began"}]}}`), PointRelease},
		"a status that is lost": {ours("update", "effects", "", `{"status":{"state":"Ambiguous","cause":"StatusMissing","history":[{"result":"ambiguous"}]}}`), PointLost},
		"news of a late report": {ours("update", "effects", "", `{"status":{"state":"Ambiguous","cause":"LeaseLapsed","lateOutcomeRef":{"name":"late.x"},"history":[{"result":"ambiguous"}]}}`), PointNoteLate},
		"resolved: it happened": {ours("update", "effects", "", `{"status":{"state":"Committed","lateOutcomeRef":{"name":"late.x"},"history":[{"result":"resolved_committed"}]}}`), PointResolve},
		"resolved: it did not":  {ours("update", "effects", "", `{"status":{"state":"Failed","history":[{"result":"resolved_not_executed"}]}}`), PointResolve},

		"a report":            {ours("create", "outcomes", "", `{"metadata":{"name":"uid.claim.agent"},"spec":{"result":"Unknown"}}`), PointReport},
		"a late report":       {ours("create", "outcomes", "", `{"metadata":{"name":"late.uid.claim.agent"},"spec":{"result":"Committed"}}`), PointReportLate},
		"a lapse":             {ours("create", "outcomes", "", `{"metadata":{"name":"uid.claim.agent"},"spec":{"reason":"LeaseLapsed"}}`), PointLapse},
		"a receipt":           {ours("create", "receipts", "", `{"spec":{"kind":"action"}}`), PointAppend},
		"an event on record":  {ours("create", "receipts", "", `{"spec":{"kind":"event"}}`), PointAppendEvent},
		"a ledger":            {ours("create", "ledgers", "", `{}`), PointCreateLedger},
		"a chain that begins": {status("ledgers", `{"status":{"seq":0}}`), PointOpenLedger},
		"a checkpoint":        {status("ledgers", `{"status":{"seq":7}}`), PointCheckpoint},
		"an approval":         {ours("create", "approvals", "", `{}`), PointApprove},
		"a claim":             {ours("create", "claims", "", `{}`), PointClaim},
		"a verdict":           {status("claims", `{}`), PointJudgeClaim},
		"a policy's status":   {status("actionpolicies", `{}`), "ActionPolicy.status"},
		"a list":              {ours("list", "actions", "", ""), "Action.list"},
		"retention":           {ours("delete", "actions", "", ""), "Action.delete"},
		"nonsense":            {status("actions", `{"status":7}`), "Action.unreadable"},

		"a kind of that name in another group": {Request{Verb: "create", Group: "batch.example.com", Resource: "actions"}, "actions.create"},
		"a kind that is not known":             {ours("create", "things", "", ""), "things.create"},
		"the leader's lease":                   {Request{Verb: "update", Group: "coordination.k8s.io", Resource: "leases"}, "leases.update"},
		"a token":                              {Request{Verb: "create", Resource: "serviceaccounts", Subresource: "token"}, "serviceaccounts/token.create"},
		"discovery":                            {Request{Verb: "get"}, "nonresource.get"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := PointOf(c.request); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
