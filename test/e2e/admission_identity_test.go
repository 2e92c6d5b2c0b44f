package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/test/testenv"
)

var _ = Describe("The identity of a statement", func() {
	var s *stage
	BeforeEach(func() { s = theStage() })

	ofEveryStatement(func(k statementKind) {
		It("is filled in by the apiserver", func(ctx SpecContext) {
			u := k.by(s)
			o := k.make(ctx, s)
			Expect(get(o, k.at(k.identity)...)).To(Equal(u.Name))
			var groups []any
			for _, g := range append(slices.Clone(u.Groups), "system:authenticated") {
				groups = append(groups, g)
			}
			Expect(get(o, k.at("claims")...)).To(HaveKeyWithValue("groups", groups))
		})

		It("comes without a list of who owns which field", func(ctx SpecContext) {
			Expect(k.make(ctx, s).GetManagedFields()).To(BeEmpty())
		})

		// Who may accept the head of a ledger has the verb for it, and no other right on it.
		if k.kind != "LedgerAcceptance" {
			It("keeps that list for a tool that applied it and applies it again", func(ctx SpecContext) {
				u := k.meddler(s)
				o := k.valid(s, u)
				apply := func() error {
					return env.Client(u).Apply(ctx, client.ApplyConfigurationFromUnstructured(o.DeepCopy()), client.FieldOwner("gitops"))
				}
				Expect(apply()).To(Succeed())
				applied := o.DeepCopy()
				Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), applied)).To(Succeed())
				Expect(applied.GetManagedFields()).NotTo(BeEmpty())
				Expect(apply()).To(Succeed())
			})
		}

		It("may be given, if it is true", func(ctx SpecContext) {
			u := k.by(s)
			first := k.make(ctx, s)
			o := k.valid(s, u)
			set(o, u.Name, k.at(k.identity)...)
			set(o, get(first, k.at("claims")...), k.at("claims")...)
			Expect(env.Client(u).Create(ctx, o)).To(Succeed())
		})

		It("is nobody else's", func(ctx SpecContext) {
			u := k.by(s)
			o := set(k.valid(s, u), "somebody-else", k.at(k.identity)...)
			Expect(env.Client(u).Create(ctx, o)).To(deniedBy(k.policy, strings.Join(k.at(k.identity), ".")+` must be "`+u.Name+`"`))
			o = set(k.valid(s, u), "", k.at(k.identity)...)
			Expect(env.Client(u).Create(ctx, o)).To(deniedBy(k.policy, `must be "`+u.Name+`"`))
		})

		It("cannot be forged by an administrator either", func(ctx SpecContext) {
			o := set(k.valid(s, testenv.User{Name: "admin"}), k.by(s).Name, k.at(k.identity)...)
			Expect(env.Admin().Create(ctx, o)).To(deniedBy(k.policy, strings.Join(k.at(k.identity), ".")+` must be "`))
		})

		DescribeTable("has no other claims than the apiserver's", func(ctx SpecContext, change func(claims fields)) {
			u := k.by(s)
			claims := get(k.make(ctx, s), k.at("claims")...).(fields)
			change(claims)
			o := set(k.valid(s, u), claims, k.at("claims")...)
			Expect(env.Client(u).Create(ctx, o)).To(deniedBy(k.policy, strings.Join(k.at("claims"), ".")+" must be exactly what the apiserver knows about you"))
		},
			Entry("with a group more", func(c fields) { c["groups"] = append(c["groups"].([]any), "system:masters") }),
			Entry("with a group less", func(c fields) { c["groups"] = c["groups"].([]any)[1:] }),
			Entry("without groups", func(c fields) { delete(c, "groups") }),
			Entry("empty", func(c fields) { clear(c) }),
			Entry("with a pod that is not theirs", func(c fields) { c["podName"] = "pod-of-somebody" }),
			Entry("with the uid of such a pod", func(c fields) { c["podUID"] = "uid" }),
			Entry("with a node", func(c fields) { c["nodeName"] = "node-1" }),
			Entry("with another credential", func(c fields) { c["credentialID"] = "JTI=1" }),
		)

		for _, path := range k.closedObjects() {
			It("comes with known keys only in "+strings.Join(path, "."), func(ctx SpecContext) {
				u := k.by(s)
				o := k.valid(s, u)
				if path[len(path)-1] == "claims" {
					set(o, get(k.make(ctx, s), path...), path...)
				}
				misspelt := append(slices.Clone(path), "misspelt")
				Expect(env.Client(u).Create(ctx, set(o, "x", misspelt...))).To(deniedBy(k.policy, "unknown: "+strings.Join(misspelt, ".")))
			})
		}

		It("is filled in by a server-side apply as by a create, and another one changes nothing", func(ctx SpecContext) {
			u := k.meddler(s)
			if k.policy == "ctrlrun-ledgeracceptances" {
				Expect(env.Allow(ctx, "", u, rbacv1.PolicyRule{
					APIGroups: []string{"ctrlrun.dev"}, Resources: []string{"ledgers"}, Verbs: []string{"govern"},
				})).To(Succeed())
			}
			o := k.valid(s, u)
			Expect(apply(ctx, env.Client(u), "kubectl", o.DeepCopy())).To(Succeed())
			now := identityOnly(o)
			Expect(env.Client(u).Get(ctx, client.ObjectKeyFromObject(o), now)).To(Succeed())
			Expect(get(now, k.at(k.identity)...)).To(Equal(u.Name))
			Expect(apply(ctx, env.Client(u), "kubectl", o.DeepCopy())).To(Succeed())
		})

		It("is refused in a server-side apply as in a create", func(ctx SpecContext) {
			o := k.valid(s, k.meddler(s))
			set(o, "somebody-else", k.at(k.identity)...)
			Expect(apply(ctx, env.Client(k.meddler(s)), "kubectl", o)).To(deniedByOneOf([]string{k.policy}))
		})

		DescribeTable("carries nothing that decides when it goes away", func(ctx SpecContext, change func(*unstructured.Unstructured), text string) {
			o := k.valid(s, k.by(s))
			change(o)
			Expect(env.Client(k.by(s)).Create(ctx, o)).To(deniedBy("ctrlrun-metadata", text))
		},
			Entry("a finalizer", func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"example.com/hold"}) }, "no finalizers"),
			Entry("an owner", func(o *unstructured.Unstructured) {
				o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "y"}})
			}, "no owners"),
			Entry("a label of the operator's", func(o *unstructured.Unstructured) {
				o.SetLabels(map[string]string{"ctrlrun.dev/canary": "true"})
			}, "leave out ctrlrun.dev/canary"),
			Entry("an annotation of the operator's", func(o *unstructured.Unstructured) {
				o.SetAnnotations(map[string]string{"ctrlrun.dev/note": "x"})
			}, "leave out ctrlrun.dev/note"),
		)

		It("leaves other labels and annotations to whoever makes it", func(ctx SpecContext) {
			o := k.valid(s, k.by(s))
			o.SetLabels(map[string]string{"team": "payments"})
			o.SetAnnotations(map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}"})
			Expect(env.Client(k.by(s)).Create(ctx, o)).To(Succeed())
		})
	})

	It("of a pod names the pod, and only that pod", func(ctx SpecContext) {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: unique("bound")}}
		Expect(env.Admin().Create(ctx, account)).To(Succeed())
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: unique("pod")},
			Spec: corev1.PodSpec{
				ServiceAccountName: account.Name,
				Containers:         []corev1.Container{{Name: "c", Image: "i"}},
			},
		}
		Expect(env.Admin().Create(ctx, pod)).To(Succeed())
		u := testenv.ServiceAccountUser(s.namespace, account.Name)
		Expect(env.Grant(ctx, s.namespace, "ctrlrun-agent", u)).To(Succeed())
		cfg, err := env.TokenConfig(ctx, s.namespace, account.Name, &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
		})
		Expect(err).NotTo(HaveOccurred())
		c, err := client.New(cfg, client.Options{Scheme: env.Scheme})
		Expect(err).NotTo(HaveOccurred())

		k := statementKinds[0]
		o := k.valid(s, u)
		Expect(c.Create(ctx, o)).To(Succeed())
		claims := get(o, k.at("claims")...).(fields)
		Expect(claims).To(And(
			HaveKeyWithValue("podName", pod.Name),
			HaveKeyWithValue("podUID", string(pod.UID)),
			HaveKeyWithValue("groups", ContainElement("system:serviceaccounts:"+s.namespace)),
			HaveKeyWithValue("credentialID", HavePrefix("JTI=")),
		))

		same := set(k.valid(s, u), claims, k.at("claims")...)
		Expect(c.Create(ctx, same)).To(Succeed())
		other := set(set(k.valid(s, u), claims, k.at("claims")...), "another-pod", append(k.at("claims"), "podName")...)
		Expect(c.Create(ctx, other)).To(deniedBy(k.policy, `podName "`+pod.Name+`"`))
		hidden := set(k.valid(s, u), claims, k.at("claims")...)
		unstructured.RemoveNestedField(hidden.Object, append(k.at("claims"), "podName")...)
		Expect(c.Create(ctx, hidden)).To(deniedBy(k.policy, `podName "`+pod.Name+`"`))
	})

	It("with more groups than fit has none, and is accepted", func(ctx SpecContext) {
		u := testenv.User{Name: unique("crowd")}
		for i := range 70 {
			u.Groups = append(u.Groups, fmt.Sprintf("group-%d", i))
		}
		Expect(env.Grant(ctx, s.namespace, "ctrlrun-agent", u)).To(Succeed())
		k := statementKinds[0]
		o := k.valid(s, u)
		Expect(env.Client(u).Create(ctx, o)).To(Succeed())
		Expect(get(o, k.at("claims")...)).To(HaveKeyWithValue("groups", BeEmpty()))
	})

	Context("that acts for somebody", func() {
		onBehalf := func(u testenv.User, user string) *unstructured.Unstructured {
			return set(statementKinds[0].valid(s, u), user, "spec", "principal", "user")
		}

		It("needs the verb represent on that name", func(ctx SpecContext) {
			u := testenv.ServiceAccountUser(s.namespace, unique("representative"))
			Expect(env.Grant(ctx, s.namespace, "ctrlrun-agent", u)).To(Succeed())
			Expect(env.Client(u).Create(ctx, onBehalf(u, "alice"))).To(deniedBy("ctrlrun-actions", `act on behalf of "alice"`, `verb "represent"`))
			Expect(env.Allow(ctx, s.namespace, u, rbacv1.PolicyRule{
				APIGroups: []string{"ctrlrun.dev"}, Resources: []string{"users"}, ResourceNames: []string{"alice"}, Verbs: []string{"represent"},
			})).To(Succeed())
			Expect(env.Client(u).Create(ctx, onBehalf(u, "alice"))).To(Succeed())
			Expect(env.Client(u).Create(ctx, onBehalf(u, "bob"))).To(deniedBy("ctrlrun-actions", `act on behalf of "bob"`))
		})

		It("does not get it by the verb impersonate", func(ctx SpecContext) {
			u := testenv.ServiceAccountUser(s.namespace, unique("impersonator"))
			Expect(env.Grant(ctx, s.namespace, "ctrlrun-agent", u)).To(Succeed())
			Expect(env.Allow(ctx, "", u, rbacv1.PolicyRule{
				APIGroups: []string{"", "ctrlrun.dev"}, Resources: []string{"users"}, ResourceNames: []string{"carol"}, Verbs: []string{"impersonate"},
			})).To(Succeed())
			Expect(env.Client(u).Create(ctx, onBehalf(u, "carol"))).To(deniedBy("ctrlrun-actions", `act on behalf of "carol"`))
		})
	})

	DescribeTable("says when its credential ends, or nothing", func(ctx SpecContext, kind, policy string, path ...string) {
		i := slices.IndexFunc(statementKinds, func(k statementKind) bool { return k.kind == kind })
		Expect(i).To(BeNumerically(">=", 0))
		k := statementKinds[i]
		u := k.by(s)
		Expect(env.Client(u).Create(ctx, set(k.valid(s, u), "2126-01-02T03:04:05Z", path...))).To(Succeed())
		Expect(env.Client(u).Create(ctx, set(k.valid(s, u), nil, path...))).To(deniedBy(policy, "expiresTime"))
		Expect(env.Client(u).Create(ctx, set(k.valid(s, u), "tomorrow", path...))).To(refusedBySchema("expiresTime"))
	},
		Entry("of an Action", "Action", "ctrlrun-actions", "spec", "principal", "expiresTime"),
		Entry("of a Delegation", "Delegation", "ctrlrun-delegations", "spec", "delegator", "expiresTime"),
	)

	DescribeTable("of an Action has arguments by name", func(ctx SpecContext, arguments any) {
		o := set(statementKinds[0].valid(s, s.agent), arguments, "spec", "arguments")
		Expect(env.Client(s.agent).Create(ctx, o)).To(deniedBy("ctrlrun-actions", "spec.arguments must be an object"))
	},
		Entry("not in a list", []any{"a"}),
		Entry("not as a text", "a=b"),
		Entry("not as a number", int64(5)),
	)
})

var _ = Describe("The name of a statement", func() {
	var s *stage
	BeforeEach(func() { s = theStage() })

	create := func(ctx context.Context, k statementKind, rename func(subject, speaker string) string) error {
		u := k.by(s)
		spec, subject := k.spec()
		o := k.valid(s, u)
		o.Object["spec"] = spec
		o.SetName(rename(subject, action.Speaker(u.Name)))
		return env.Client(u).Create(ctx, o)
	}

	for _, k := range statementKinds {
		if k.named() {
			continue
		}
		Context("of kind "+k.kind, func() {
			DescribeTable("is refused", func(ctx SpecContext, rename func(subject, speaker string) string) {
				Expect(create(ctx, k, rename)).To(deniedBy(k.policy, "the name must be "))
			},
				Entry("without speaker", func(subject, _ string) string { return subject }),
				Entry("with another speaker", func(subject, _ string) string { return subject + ".somebody-else" }),
				Entry("with a longer speaker", func(subject, speaker string) string { return subject + "." + speaker + "-2" }),
				Entry("of another subject", func(subject, speaker string) string { return "x" + subject + "." + speaker }),
				Entry("as the first try", func(subject, speaker string) string { return subject + "." + speaker + ".1" }),
				Entry("as try zero", func(subject, speaker string) string { return subject + "." + speaker + ".0" }),
				Entry("with a leading zero", func(subject, speaker string) string { return subject + "." + speaker + ".02" }),
				Entry("with a word", func(subject, speaker string) string { return subject + "." + speaker + ".x" }),
				Entry("with late behind it", func(subject, speaker string) string { return subject + "." + speaker + ".late" }),
				Entry("with two numbers", func(subject, speaker string) string { return subject + "." + speaker + ".2.3" }),
				Entry("with a number too many digits", func(subject, speaker string) string { return subject + "." + speaker + ".12345" }),
			)

			if k.kind == "Outcome" {
				It("is one, as a lock is", func(ctx SpecContext) {
					Expect(create(ctx, k, func(subject, speaker string) string { return subject + "." + speaker })).To(Succeed())
					Expect(create(ctx, k, func(subject, speaker string) string { return "late." + subject + "." + speaker })).To(Succeed())
					Expect(create(ctx, k, func(subject, speaker string) string { return subject + "." + speaker + ".2" })).To(deniedBy(k.policy, "the name must be "))
					Expect(create(ctx, k, func(subject, speaker string) string { return "late." + subject + "." + speaker + ".2" })).To(deniedBy(k.policy, "the name must be "))
					Expect(create(ctx, k, func(subject, speaker string) string { return "late.late." + subject + "." + speaker })).To(deniedBy(k.policy, "the name must be "))
				})
				return
			}
			DescribeTable("is accepted", func(ctx SpecContext, rename func(subject, speaker string) string) {
				Expect(create(ctx, k, rename)).To(Succeed())
			},
				Entry("as subject and speaker", func(subject, speaker string) string { return subject + "." + speaker }),
				Entry("as the second try", func(subject, speaker string) string { return subject + "." + speaker + ".2" }),
				Entry("as the tenth try", func(subject, speaker string) string { return subject + "." + speaker + ".10" }),
			)
			It("tells which it must be", func(ctx SpecContext) {
				var expected string
				Expect(create(ctx, k, func(subject, speaker string) string {
					expected = `"` + subject + "." + speaker + `"`
					return "my-own-idea"
				})).To(MatchError(ContainSubstring(expected)))
			})
		})
	}

	DescribeTable("holds every user name", func(ctx SpecContext, name string) {
		u := testenv.User{Name: name}
		Expect(env.Grant(ctx, s.namespace, "ctrlrun-approver", u)).To(Succeed())
		k := statementKinds[1]
		Expect(env.Client(u).Create(ctx, k.valid(s, u))).To(Succeed())
	},
		Entry("with nothing to keep of it", "@@@"),
		Entry("in capitals, with a Kelvin sign", "Ann.ELK\u212a@Example.com"),
		Entry("of a hundred characters", strings.Repeat("abcdefghi-", 9)+"abcdefghij"),
		Entry("of a hundred and one", strings.Repeat("abcdefghi-", 10)+"a"),
		Entry("of two hundred", strings.Repeat("abcdefghi-", 19)+"abcdefghij"),
	)

	It("of an Action is anything up to 100 characters", func(ctx SpecContext) {
		k := statementKinds[0]
		o := k.valid(s, s.agent)
		o.SetName(strings.Repeat("a", 100))
		Expect(env.Client(s.agent).Create(ctx, o)).To(Succeed())
		o = k.valid(s, s.agent)
		o.SetName(strings.Repeat("a", 101))
		Expect(env.Client(s.agent).Create(ctx, o)).To(refusedBySchema("at most 100 characters"))
		o = k.valid(s, s.agent)
		o.SetName("")
		o.SetGenerateName("stripe.refund-")
		Expect(env.Client(s.agent).Create(ctx, o)).To(Succeed())
	})

	Context("that is a lock", func() {
		k := statementKinds[3]

		It("cannot be taken by another user, not even one with every right in the namespace", func(ctx SpecContext) {
			o := k.valid(s, s.agent)
			Expect(env.Client(s.wildcard).Create(ctx, o)).To(deniedBy(k.policy, "the name must be "))
		})

		It("is taken by the operator for a lapse, and then the agent is late", func(ctx SpecContext) {
			lapse := set(k.valid(s, s.agent), "LeaseLapsed", "spec", "reason")
			agents := k.valid(s, s.agent)
			agents.Object["spec"] = fields{}
			for _, f := range []string{"actionRef", "claimID", "result"} {
				set(agents, get(lapse, "spec", f), "spec", f)
			}
			agents.SetName(lapse.GetName())
			Expect(env.Client(operator).Create(ctx, lapse)).To(Succeed())
			Expect(get(lapse, "spec", "reporter")).To(Equal(operator.Name))
			Expect(env.Client(s.agent).Create(ctx, agents.DeepCopy())).To(MatchError(ContainSubstring("already exists")))
			agents.SetName("late." + agents.GetName())
			Expect(env.Client(s.agent).Create(ctx, agents)).To(Succeed())
		})

		It("is the operator's only for the Action it speaks of", func(ctx SpecContext) {
			o := k.valid(s, s.agent)
			o.SetName("x" + o.GetName())
			Expect(env.Client(operator).Create(ctx, o)).To(deniedBy(k.policy, "the name must be "))
		})

		It("is not taken by the operator in somebody's name", func(ctx SpecContext) {
			o := set(k.valid(s, s.agent), s.agent.Name, "spec", "reporter")
			Expect(env.Client(operator).Create(ctx, o)).To(deniedBy(k.policy, `spec.reporter must be "`+operator.Name+`"`))
		})

		It("does not lapse by anybody else's word, and never to anything but Unknown", func(ctx SpecContext) {
			for _, u := range []testenv.User{s.agent, s.wildcard} {
				o := set(k.valid(s, u), "LeaseLapsed", "spec", "reason")
				Expect(env.Client(u).Create(ctx, o)).To(deniedBy(k.policy, "LeaseLapsed is how the operator"))
			}
			o := set(set(k.valid(s, operator), "LeaseLapsed", "spec", "reason"), "NotExecuted", "spec", "result")
			Expect(env.Client(operator).Create(ctx, o)).To(refusedBySchema("LeaseLapsed goes with the result Unknown"))
		})
	})
})
