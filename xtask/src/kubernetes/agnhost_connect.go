// The commands of agnhost that cyclonus' pods run, and no others.
//
// Each of some 300 connections of a step is a process, and the whole program takes 0.1 s to start: it has a client of
// Kubernetes, servers of webhooks and more in it.
package main

import (
	"os"

	"github.com/spf13/cobra"
	"k8s.io/kubernetes/test/images/agnhost/connect"
	"k8s.io/kubernetes/test/images/agnhost/pause"
	"k8s.io/kubernetes/test/images/agnhost/porter"
	servehostname "k8s.io/kubernetes/test/images/agnhost/serve-hostname"
)

func main() {
	root := &cobra.Command{Use: "agnhost"}
	root.AddCommand(connect.CmdConnect, pause.CmdPause, porter.CmdPorter, servehostname.CmdServeHostname)
	if root.Execute() != nil {
		os.Exit(1)
	}
}
