package cli

import (
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// objectFlags is `-o` of the commands whose answer is Kubernetes objects: a table for people, and every format kubectl has.
type objectFlags struct{ print *genericclioptions.PrintFlags }

func newObjectFlags() *objectFlags {
	return &objectFlags{print: genericclioptions.NewPrintFlags("")}
}

func (o *objectFlags) addTo(cmd *cobra.Command) {
	o.print.AddFlags(cmd)
	// The template flags repeat what -o already says.
	_ = cmd.Flags().MarkHidden("template")
	_ = cmd.Flags().MarkHidden("allow-missing-template-keys")
	_ = cmd.Flags().MarkHidden("show-managed-fields")
}

const (
	wideFormat = "wide"
	nameFormat = "name"
)

// table reports whether people read the answer, and whether they want every column.
func (o *objectFlags) table() bool {
	format := *o.print.OutputFormat
	return format == "" || format == wideFormat
}

func (o *objectFlags) wide() bool { return *o.print.OutputFormat == wideFormat }

// check refuses a format nobody knows before anything is done.
func (o *objectFlags) check() error {
	if o.table() {
		return nil
	}
	_, err := o.print.ToPrinter()
	return usage(err)
}

// object prints one object, or a list of them.
func (o *objectFlags) object(a *app, scheme *runtime.Scheme, object runtime.Object) error {
	printer, err := o.print.ToPrinter()
	if err != nil {
		return usage(err)
	}
	if err := setKinds(scheme, object); err != nil {
		return err
	}
	if _, list := object.(kube.ObjectList); list && *o.print.OutputFormat == nameFormat {
		// The name printer takes lists of kubectl's own kind only.
		return meta.EachListItem(object, func(item runtime.Object) error { return printer.PrintObj(item, a.streams.Out) })
	}
	return printer.PrintObj(object, a.streams.Out)
}

// setKinds writes apiVersion and kind into typed objects: the client leaves them out, and a reader of YAML needs them.
func setKinds(scheme *runtime.Scheme, object runtime.Object) error {
	set := func(object runtime.Object) error {
		gvk, err := apiutil.GVKForObject(object, scheme)
		if err == nil {
			object.GetObjectKind().SetGroupVersionKind(gvk)
		}
		return err
	}
	if _, ok := object.(kube.ObjectList); ok {
		if err := meta.EachListItem(object, set); err != nil {
			return err
		}
	}
	return set(object)
}
