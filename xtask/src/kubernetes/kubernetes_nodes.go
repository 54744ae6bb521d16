// What makes nodes of machines and runs pods on them.
package main

import (
	"context"

	"github.com/spf13/cobra"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func init() {
	programs["kube-controller-manager"] = controllers.NewControllerManagerCommand
	programs["kube-proxy"] = proxy.NewProxyCommand
	programs["kubelet"] = func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }
}
