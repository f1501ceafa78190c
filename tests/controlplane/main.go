// Command controlplane is a whole Kubernetes control plane in one file, for the tests.
//
// In:    the name it is called by, or its first argument: kube-apiserver, kube-controller-manager, kube-scheduler,
// etcd or kubectl; the rest of the arguments are that program's own.
// Never: anything those programs do not do themselves. One binary links the shared code once, which makes the build
// and the cache several times smaller than five programs.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

var programs = map[string]func() int{
	"kube-apiserver":          command(apiserver.NewAPIServerCommand),
	"kube-controller-manager": command(controllers.NewControllerManagerCommand),
	"kube-scheduler":          command(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kubectl":                 command(kubectl.NewDefaultKubectlCommand),
	"etcd":                    func() int { etcdmain.Main(os.Args); return 0 },
}

func main() {
	name := filepath.Base(os.Args[0])
	if programs[name] == nil && len(os.Args) > 1 {
		name, os.Args = os.Args[1], os.Args[1:]
	}
	run := programs[name]
	if run == nil {
		fmt.Fprintf(os.Stderr, "controlplane: call it as one of %s\n", strings.Join(names(), ", "))
		os.Exit(2)
	}
	os.Exit(run())
}

func command(build func() *cobra.Command) func() int {
	return func() int { return cli.Run(build()) }
}

func names() []string {
	all := make([]string, 0, len(programs))
	for name := range programs {
		all = append(all, name)
	}
	sort.Strings(all)
	return all
}
