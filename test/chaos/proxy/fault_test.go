package proxy

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const createConfigMap = "configmaps.create"

var _ = Describe("a fault", func() {
	It("loses the response of a write that is done", func(ctx context.Context) {
		var h heard
		s := newSetting(ctx, once(createConfigMap, LoseResponse().After(h.hear)))
		name, err := s.create(ctx)
		wasReset(err)
		Expect(s.exists(ctx, name)).To(BeTrue())
		Expect(h.all()).To(Equal([]int{http.StatusCreated}))
		Expect(s.count(KindLoseResponse, createConfigMap)).To(Equal(1))
		_, err = s.kube.CoreV1().ConfigMaps(s.ns).Create(ctx, configMap(name), metav1.CreateOptions{})
		Expect(apierrors.IsAlreadyExists(err)).To(BeTrue(), "%v", err)
	})

	It("lets a write land after its client was told that it failed", func(ctx context.Context) {
		var h heard
		s := newSetting(ctx, once(createConfigMap, Late(2*time.Second).After(h.hear)))
		began := time.Now()
		name, err := s.create(ctx)
		wasReset(err)
		Expect(time.Since(began)).To(BeNumerically("<", 2*time.Second))
		Expect(s.exists(ctx, name)).To(BeFalse())
		Expect(h.all()).To(BeEmpty())
		Expect(s.proxy.Drain(ctx)).To(Succeed())
		Expect(time.Since(began)).To(BeNumerically(">=", 2*time.Second))
		Expect(s.exists(ctx, name)).To(BeTrue())
		Expect(h.all()).To(Equal([]int{http.StatusCreated}))
		Expect(s.count(KindLate, createConfigMap)).To(Equal(1))
	})

	It("drops what is not due when the proxy is closed, and says so", func(ctx context.Context) {
		var h heard
		s := newSetting(ctx, once(createConfigMap, Late(time.Hour).After(h.hear)))
		name, err := s.create(ctx)
		wasReset(err)
		tooSoon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		Expect(s.proxy.Drain(tooSoon)).To(MatchError(ContainSubstring("1 late")))
		dropped, err := s.proxy.Close()
		Expect(err).NotTo(HaveOccurred())
		Expect(dropped).To(HaveLen(1))
		Expect(dropped[0].Point).To(Equal(createConfigMap))
		Expect(h.all()).To(Equal([]int{Dropped}))
		Expect(s.exists(ctx, name)).To(BeFalse())
		Expect(s.count(KindDropped, createConfigMap)).To(Equal(1))
	})

	DescribeTable("refuses a write in words that Kubernetes clients know",
		func(ctx context.Context, code int, is func(error) bool) {
			s := newSetting(ctx, once(createConfigMap, Refuse(code, 0)))
			name, err := s.create(ctx)
			Expect(is(err)).To(BeTrue(), "%v", err)
			Expect(apierrors.IsAlreadyExists(err)).To(BeFalse())
			var status apierrors.APIStatus
			Expect(errors.As(err, &status)).To(BeTrue())
			Expect(status.Status().Code).To(Equal(int32(code)))
			Expect(s.exists(ctx, name)).To(BeFalse())
			Expect(s.count(KindRefuse, createConfigMap)).To(Equal(1))
		},
		Entry("409", http.StatusConflict, apierrors.IsConflict),
		Entry("429", http.StatusTooManyRequests, apierrors.IsTooManyRequests),
		Entry("500", http.StatusInternalServerError, apierrors.IsInternalError),
		Entry("503", http.StatusServiceUnavailable, apierrors.IsServiceUnavailable),
	)

	DescribeTable("with Retry-After makes client-go try again when it says",
		func(ctx context.Context, code int) {
			s := newSetting(ctx, once(createConfigMap, Refuse(code, time.Second)))
			began := time.Now()
			name, err := s.create(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(time.Since(began)).To(BeNumerically(">=", time.Second))
			Expect(s.exists(ctx, name)).To(BeTrue())
			Expect(s.count("", createConfigMap)).To(Equal(2))
		},
		Entry("429", http.StatusTooManyRequests),
		Entry("503", http.StatusServiceUnavailable),
	)

	It("resets a write that is never forwarded", func(ctx context.Context) {
		var h heard
		var called atomic.Int64
		s := newSetting(ctx, once(createConfigMap, Reset().Before(func() { called.Add(1) }).After(h.hear)))
		name, err := s.create(ctx)
		wasReset(err)
		Expect(s.exists(ctx, name)).To(BeFalse())
		Expect(called.Load()).To(Equal(int64(1)))
		Expect(h.all()).To(BeEmpty())
		Expect(s.count(KindReset, createConfigMap)).To(Equal(1))
	})

	It("holds a write up", func(ctx context.Context) {
		s := newSetting(ctx, once(createConfigMap, Stall(300*time.Millisecond)))
		began := time.Now()
		name, err := s.create(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(time.Since(began)).To(BeNumerically(">=", 300*time.Millisecond))
		Expect(s.exists(ctx, name)).To(BeTrue())
		Expect(s.count(KindStall, createConfigMap)).To(Equal(1))
	})

	It("drops a write that it held up if its client does not wait", func(ctx context.Context) {
		var h heard
		s := newSetting(ctx, once(createConfigMap, Stall(time.Hour).After(h.hear)))
		impatient, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		name, err := s.create(impatient)
		noStatus(err)
		Eventually(h.all).Should(Equal([]int{Dropped}))
		Expect(s.exists(ctx, name)).To(BeFalse())
		Expect(s.count(KindDropped, createConfigMap)).To(Equal(1))
	})

	It("that does not fit its request is left out, and counted", func(ctx context.Context) {
		s := newSetting(ctx, once(createConfigMap, Cut(time.Millisecond)))
		name, err := s.create(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(s.exists(ctx, name)).To(BeTrue())
		Expect(s.count(KindMisfit, createConfigMap)).To(Equal(1))
		Expect(s.count(KindCut, createConfigMap)).To(BeZero())
	})
})

var _ = Describe("the functions of a fault", func() {
	It("stand before the write, and between the write and the client", func(ctx context.Context) {
		var s *setting
		var before, after atomic.Bool
		returned := make(chan struct{})
		const name = "between"
		s = newSetting(ctx, once(createConfigMap, Forward().
			Before(func() { before.Store(s.exists(ctx, name)) }).
			After(func(status int) {
				defer GinkgoRecover()
				after.Store(s.exists(ctx, name))
				Expect(status).To(Equal(http.StatusCreated))
				Expect(returned).NotTo(BeClosed())
			})))
		_, err := s.kube.CoreV1().ConfigMaps(s.ns).Create(ctx, configMap(name), metav1.CreateOptions{})
		close(returned)
		Expect(err).NotTo(HaveOccurred())
		Expect(before.Load()).To(BeFalse())
		Expect(after.Load()).To(BeTrue())
	})

	It("hear how a write ended whose client has gone", func(ctx context.Context) {
		var h heard
		gone, leave := context.WithCancel(ctx)
		s := newSetting(ctx, once(createConfigMap, Forward().Before(leave).After(h.hear)))
		name, err := s.create(gone)
		noStatus(err)
		Eventually(h.all).Should(Equal([]int{http.StatusCreated}))
		Expect(s.exists(ctx, name)).To(BeTrue())
	})

	It("hear that nobody answered, and the client is reset", func(ctx context.Context) {
		var h heard
		silent, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		Expect(silent.Close()).To(Succeed())
		p := start(once(createConfigMap, Forward().After(h.hear)))
		kube := kubernetes.NewForConfigOrDie(listen(p, "worker", &rest.Config{Host: "http://" + silent.Addr().String()}))
		_, err = kube.CoreV1().ConfigMaps("default").Create(ctx, configMap("x"), metav1.CreateOptions{})
		wasReset(err)
		Expect(h.all()).To(Equal([]int{Unanswered}))
	})
})
