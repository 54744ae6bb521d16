// A second opinion on policies: the engine of cyclonus, asked line by line.
//
// A line of standard input is a case in JSON, with policies and questions. The answer is a line with a word for each
// question: two letters, for what the source may send and the destination may receive, y or n.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/mattfenwick/cyclonus/pkg/matcher"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
)

type end struct {
	IP              string            `json:"ip"`
	Namespace       string            `json:"namespace"`
	NamespaceLabels map[string]string `json:"namespaceLabels"`
	Labels          map[string]string `json:"labels"`
}

func (e end) peer() *matcher.TrafficPeer {
	peer := &matcher.TrafficPeer{IP: e.IP}
	if e.Namespace != "" {
		peer.Internal = &matcher.InternalPeer{
			PodLabels:       e.Labels,
			NamespaceLabels: e.NamespaceLabels,
			Namespace:       e.Namespace,
		}
	}
	return peer
}

type question struct {
	From     end    `json:"from"`
	To       end    `json:"to"`
	Port     int    `json:"port"`
	PortName string `json:"portName"`
	Protocol string `json:"protocol"`
}

type whole struct {
	Policies  []*networking.NetworkPolicy `json:"policies"`
	Questions []question                  `json:"questions"`
}

func letter(allowed bool) string {
	if allowed {
		return "y"
	}
	return "n"
}

func main() {
	lines := bufio.NewReader(os.Stdin)
	decoder := json.NewDecoder(lines)
	for decoder.More() {
		var one whole
		if err := decoder.Decode(&one); err != nil {
			fmt.Fprintln(os.Stderr, "no case:", err)
			os.Exit(1)
		}
		policy := matcher.BuildNetworkPolicies(false, one.Policies)
		words := make([]string, len(one.Questions))
		for index, it := range one.Questions {
			found := policy.IsTrafficAllowed(&matcher.Traffic{
				Source:           it.From.peer(),
				Destination:      it.To.peer(),
				ResolvedPort:     it.Port,
				ResolvedPortName: it.PortName,
				Protocol:         core.Protocol(it.Protocol),
			})
			words[index] = letter(found.Egress.IsAllowed()) + letter(found.Ingress.IsAllowed())
		}
		fmt.Println(strings.Join(words, " "))
	}
}
