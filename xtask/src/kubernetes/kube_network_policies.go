// Another opinion on policies: the engine of kube-network-policies, asked line by line.
//
// A line of standard input is a case in JSON, with policies of both kinds, nodes and questions. The answer is a line with a
// word for each question: two letters, for what the source may send and the destination may receive, y or n.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"sigs.k8s.io/kube-network-policies/pkg/api"
	"sigs.k8s.io/kube-network-policies/pkg/network"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"
	cluster "sigs.k8s.io/kube-network-policies/plugins/npa-v1alpha2"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	clusterinformers "sigs.k8s.io/network-policy-api/pkg/client/informers/externalversions"
)

type port struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol"`
	Number   int32  `json:"number"`
}

type end struct {
	IP              string            `json:"ip"`
	Namespace       string            `json:"namespace"`
	NamespaceLabels map[string]string `json:"namespaceLabels"`
	Labels          map[string]string `json:"labels"`
	Ports           []port            `json:"ports"`
}

func (e end) pod() *api.PodInfo {
	if e.Namespace == "" {
		return nil
	}
	pod := &api.PodInfo{
		Labels:    e.Labels,
		Namespace: &api.Namespace{Name: e.Namespace, Labels: e.NamespaceLabels},
	}
	for _, it := range e.Ports {
		named := &api.ContainerPort{Name: it.Name, Port: it.Number, Protocol: it.Protocol}
		pod.ContainerPorts = append(pod.ContainerPorts, named)
	}
	return pod
}

type node struct {
	Labels    map[string]string `json:"labels"`
	Addresses []string          `json:"addresses"`
}

type question struct {
	From     end    `json:"from"`
	To       end    `json:"to"`
	Port     int    `json:"port"`
	Protocol string `json:"protocol"`
}

type whole struct {
	Policies  []*networking.NetworkPolicy      `json:"policies"`
	Cluster   []*v1alpha2.ClusterNetworkPolicy `json:"cluster"`
	Nodes     []node                           `json:"nodes"`
	Questions []question                       `json:"questions"`
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "no case:", err)
		os.Exit(1)
	}
}

// evaluators returns those of all tiers in their order, as the agent of the engine has them.
func (w whole) evaluators() []api.PolicyEvaluator {
	objects := informers.NewSharedInformerFactory(nil, 0)
	policies := objects.Networking().V1().NetworkPolicies()
	for _, it := range w.Policies {
		// An API server keeps no empty list, which the engine would take for one that allows all.
		if len(it.Spec.Ingress) == 0 {
			it.Spec.Ingress = nil
		}
		if len(it.Spec.Egress) == 0 {
			it.Spec.Egress = nil
		}
		check(policies.Informer().GetIndexer().Add(it))
	}
	nodes := objects.Core().V1().Nodes()
	for index, it := range w.Nodes {
		found := &core.Node{ObjectMeta: meta.ObjectMeta{Name: fmt.Sprint(index), Labels: it.Labels}}
		for _, address := range it.Addresses {
			one := core.NodeAddress{Type: core.NodeInternalIP, Address: address}
			found.Status.Addresses = append(found.Status.Addresses, one)
		}
		check(nodes.Informer().GetIndexer().Add(found))
	}
	ofCluster := clusterinformers.NewSharedInformerFactory(nil, 0).Policy().V1alpha2().ClusterNetworkPolicies()
	for _, it := range w.Cluster {
		check(ofCluster.Informer().GetIndexer().Add(it))
	}
	tier := func(tier v1alpha2.Tier) api.PolicyEvaluator {
		return cluster.NewClusterNetworkPolicy(tier, ofCluster, nil, nodes.Lister())
	}
	return []api.PolicyEvaluator{
		tier(v1alpha2.AdminTier),
		networkpolicy.NewStandardNetworkPolicy(
			"node", objects.Core().V1().Namespaces(), objects.Core().V1().Pods(), policies,
		),
		tier(v1alpha2.BaselineTier),
	}
}

// letter asks one evaluator after the other, until one decides.
func letter(evaluators []api.PolicyEvaluator, ask func(api.PolicyEvaluator) (api.Verdict, error)) string {
	for _, it := range evaluators {
		verdict, err := ask(it)
		check(err)
		switch verdict {
		case api.VerdictAccept:
			return "y"
		case api.VerdictDeny:
			return "n"
		}
	}
	return "y"
}

func main() {
	lines := bufio.NewReader(os.Stdin)
	decoder := json.NewDecoder(lines)
	all := context.Background()
	for decoder.More() {
		var one whole
		check(decoder.Decode(&one))
		evaluators := one.evaluators()
		words := make([]string, len(one.Questions))
		for index, it := range one.Questions {
			from, to := it.From.pod(), it.To.pod()
			packet := &network.Packet{
				SrcIP:   net.ParseIP(it.From.IP),
				DstIP:   net.ParseIP(it.To.IP),
				Proto:   core.Protocol(it.Protocol),
				SrcPort: 40000,
				DstPort: it.Port,
			}
			words[index] = letter(evaluators, func(it api.PolicyEvaluator) (api.Verdict, error) {
				return it.EvaluateEgress(all, packet, from, to)
			}) + letter(evaluators, func(it api.PolicyEvaluator) (api.Verdict, error) {
				return it.EvaluateIngress(all, packet, from, to)
			})
		}
		fmt.Println(strings.Join(words, " "))
	}
}
