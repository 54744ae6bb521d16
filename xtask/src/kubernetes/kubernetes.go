// The server of the Kubernetes API, its clients without a node, and the etcd behind it, as one binary: they
// share most of their code. The name it is called by says which one it is. Built together with
// kubernetes_nodes.go, it is the rest of a cluster as well.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	failure "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// Programs that are a command of cobra and end with what it returns.
var programs = map[string]func() *cobra.Command{
	"kube-apiserver": apiserver.NewAPIServerCommand,
	"kube-scheduler": func() *cobra.Command { return scheduler.NewSchedulerCommand() },
}

func main() {
	name := filepath.Base(os.Args[0])
	switch name {
	case "etcd":
		etcdmain.Main(os.Args)
		return
	case "kubectl":
		failure.CheckErr(cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()))
		return
	}
	program, found := programs[name]
	if !found {
		fmt.Fprintf(os.Stderr, "no program of Kubernetes in here is called %q; call this by a link\n", name)
		os.Exit(2)
	}
	os.Exit(cli.Run(program()))
}
