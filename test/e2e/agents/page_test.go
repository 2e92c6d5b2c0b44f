package agents

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/test/testenv"
)

// The page that describes the protocol is a script: what it tells people to send is sent.
var _ = Describe("docs/rest.md", func() {
	page := func() string {
		GinkgoHelper()
		data, err := os.ReadFile(filepath.Join(env.Root, "docs", "rest.md"))
		Expect(err).NotTo(HaveOccurred())
		return string(data)
	}
	// names are the two tables of names, by what is named.
	table := func(header string) map[string]string {
		GinkgoHelper()
		_, after, found := strings.Cut(page(), header)
		Expect(found).To(BeTrue(), header)
		rows, _, _ := strings.Cut(after, "\n\n")
		names := map[string]string{}
		for _, row := range regexp.MustCompile("(?m)^\\| `([^`]*)`.*\\| `([^`]*)` \\|$").FindAllStringSubmatch(rows, -1) {
			names[row[1]] = row[2]
		}
		Expect(len(names)).To(BeNumerically(">", 3))
		return names
	}

	It("gives the names that the operator and admission compute", func() {
		for username, name := range table("| User name | Speaker |") {
			Expect(action.Speaker(username)).To(Equal(name), username)
		}
		for key, name := range table("| Effect key | Effect name |") {
			Expect(action.EffectName(key)).To(Equal(name), key)
		}
	})

	It("is the life of one action, request by request", func(ctx SpecContext) {
		var script strings.Builder
		script.WriteString("set -euo pipefail\n")
		for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(page(), -1) {
			// A call of a provider is no part of the protocol; one of openssl is beside it.
			if !strings.Contains(block[1], "openssl") {
				script.WriteString(block[1])
			}
		}
		s := newSampleSite(ctx)
		s.agent = testenv.ServiceAccountUser(s.ns, account)
		s.people(ctx)
		s.byToken(ctx)
		variables := []string{"PATH=" + os.Getenv("PATH"), "NS=" + s.ns}
		for _, variable := range s.connection {
			variables = append(variables, strings.NewReplacer("CTRLRUN_", "", "_FILE", "").Replace(variable))
		}
		r := s.launch([]string{"/bin/bash", s.file("page.sh", []byte(script.String()))}, variables...)
		s.approve(ctx, s.asked(ctx, "txn_1"))
		r.wait()
		r.exits(0)

		a := s.one(ctx, "txn_1")
		Expect(a.Status.State).To(Equal(v1alpha1.ActionCommitted))
		Expect(a.Name).To(Equal(action.EffectName("refund:txn_1")))
		Expect(r.stdout.String()).To(MatchRegexp(`^201\n201\n200\n201\n` + a.Status.Execution.Token + `\n201\n409\n(.*\n)*` + a.Status.ReceiptRef.Hash + `\n$`))
	})
})
