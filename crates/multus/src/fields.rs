//! List the fields of Multus' plugin and daemon, and those of CNI before them.

use crate::report::Outcome;

/// A field that Multus knows.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its path, as Multus writes it.
    pub name: &'static str,
    /// The type of its value.
    pub kind: Kind,
    /// Its fate where that does not depend on the value.
    pub outcome: Option<Outcome>,
    /// podnet's counterpart, or why there is none.
    pub counterpart: &'static str,
}

/// Type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A string.
    Text,
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Number,
    /// An array of strings.
    Names,
    /// An object.
    Object,
    /// An array of objects.
    Objects,
}

impl Kind {
    /// The words of an error.
    pub(crate) const fn expected(self) -> &'static str {
        match self {
            Self::Text => "a string",
            Self::Flag => "true or false, without quotes",
            Self::Number => "a whole number, without quotes",
            Self::Names => "an array of strings",
            Self::Object => "an object",
            Self::Objects => "an array of objects",
        }
    }
}

const fn fixed(
    name: &'static str,
    kind: Kind,
    outcome: Outcome,
    counterpart: &'static str,
) -> Field {
    Field {
        name,
        kind,
        outcome: Some(outcome),
        counterpart,
    }
}

const fn judged(name: &'static str, kind: Kind, counterpart: &'static str) -> Field {
    Field {
        name,
        kind,
        outcome: None,
        counterpart,
    }
}

use Kind::{Flag, Names, Number, Object, Objects, Text};
use Outcome::{NeedsNothing, NotCarried};

/// All fields that Multus knows, in the order of docs/from-multus.md.
pub const FIELDS: &[Field] = &[
    // CNI's own.
    fixed(
        "cniVersion",
        Text,
        NeedsNothing,
        "podnet's configuration offers 0.3.1 to 1.1.0, and the runtime chooses",
    ),
    fixed(
        "name",
        Text,
        NeedsNothing,
        "the network that the runtime knows is called podnet",
    ),
    fixed(
        "type",
        Text,
        NeedsNothing,
        "`podnet-agent run --install-cni` writes 05-podnet.conflist, whose type is podnet",
    ),
    judged(
        "capabilities",
        Object,
        "podnet's configuration declares bandwidth, cgroupPath, dns, portMappings and the annotations of pods; \
         others that the runtime could pass do not reach plugins",
    ),
    fixed(
        "runtimeConfig",
        Object,
        NotCarried,
        "runtimes add it to each request and take none from a file; pods ask by their lists",
    ),
    fixed(
        "prevResult",
        Object,
        NotCarried,
        "runtimes add it to each request and take none from a file; podnet is the first plugin of its list",
    ),
    fixed(
        "ipam",
        Object,
        NeedsNothing,
        "Multus itself asks for no addresses; the ipam of each network's own configuration is what counts",
    ),
    fixed(
        "dns",
        Object,
        NeedsNothing,
        "Multus itself does nothing with it; the dns of each network's own configuration is what counts",
    ),
    // Which networks.
    judged(
        "delegates",
        Objects,
        "the first is the default network: `--default-network`, and a file in the runtime's directory. Others are \
         objects and `--default-networks`. Without effect next to clusterNetwork",
    ),
    judged(
        "clusterNetwork",
        Text,
        "`--default-network=podnetwork:NAME` for a network of podnet; for another plugin's \
         `--default-network=delegate`, which takes the first file of `--cni-conf-dir` that is not podnet's",
    ),
    judged(
        "defaultNetworks",
        Names,
        "`--default-networks` with `multusNamespace`. One that is no definition needs one. Without effect unless \
         clusterNetwork is set",
    ),
    judged(
        "systemNamespaces",
        Names,
        "`--system-namespaces`, kube-system when not given, as with Multus; without effect unless there are \
         defaultNetworks",
    ),
    judged(
        "multusNamespace",
        Text,
        "`--default-override=NAMESPACE`: where v1.multus-cni.io/default-network looks for a definition; \
         Multus' default is kube-system, podnet's is to refuse the annotation",
    ),
    judged(
        "confDir",
        Text,
        "`--cni-conf-dir`, the runtime's own directory: copy the files that definitions without a configuration name, \
         so that they come after the default network's by name",
    ),
    judged(
        "multusMasterCNI",
        Text,
        "`--default-network=delegate` takes the first file by name: rename the files if that is another one",
    ),
    judged(
        "multusAutoconfigDir",
        Text,
        "`--default-network=delegate` takes the first file of `--cni-conf-dir`: where this is another directory, \
         copy the default network's file",
    ),
    judged(
        "auxiliaryCNIChainName",
        Text,
        "no counterpart: plugins that go with the default network are read from the directory of `--cni-conf-dir` that \
         is named as the network, unless its list has loadOnlyInlinedPlugins",
    ),
    judged(
        "readinessindicatorfile",
        Text,
        "no counterpart: with `--default-network=delegate` the node is not ready until that directory has a \
         configuration and its plugins answer STATUS; no other file is waited for",
    ),
    // Who may name what.
    judged("namespaceIsolation", Flag, "`--namespace-isolation`"),
    judged(
        "globalNamespaces",
        Text,
        "`--global-namespaces`, default when not given, as with Multus; without effect unless namespaceIsolation is \
         true",
    ),
    // Places.
    fixed(
        "cniDir",
        Text,
        NeedsNothing,
        "podnet's records are in `--state-dir`; keep the directory until the last pod that Multus has attached is gone",
    ),
    judged(
        "binDir",
        Text,
        "plugins are looked for in CNI_PATH of the runtime, or in `--cni-bin-dir` alone: copy those of another \
         directory to the runtime's",
    ),
    fixed(
        "kubeconfig",
        Text,
        NotCarried,
        "podnet's DaemonSet uses its own service account, and Multus' has not the rights that it needs; outside of a \
         pod, `--kubeconfig`",
    ),
    fixed(
        "chrootDir",
        Text,
        NeedsNothing,
        "`--host-root`, which podnet's manifests set to their own mount of the node's root",
    ),
    judged(
        "cniConfigDir",
        Text,
        "`--cni-conf-dir`, as the node has it, /etc/cni/net.d when not given; Multus' is a path in its container",
    ),
    judged(
        "multusConfigFile",
        Text,
        "`--install-cni` writes podnet's configuration, as auto does for Multus; import the file of another value",
    ),
    fixed(
        "socketDir",
        Text,
        NeedsNothing,
        "podnet's plugin finds its agent at `--socket`, /run/podnet/agent.sock",
    ),
    fixed(
        "daemonSocketDir",
        Text,
        NeedsNothing,
        "podnet's plugin finds its agent at `--socket`, /run/podnet/agent.sock",
    ),
    // Running.
    judged(
        "retryDeleteOnError",
        Flag,
        "podnet always does: DEL fails until every plugin has succeeded; there is no option to ignore that",
    ),
    judged("logLevel", Text, "`--log`"),
    fixed(
        "logFile",
        Text,
        NotCarried,
        "podnet logs to stderr of its container, and the kubelet keeps that",
    ),
    judged(
        "logToStderr",
        Flag,
        "podnet always logs to stderr of its container",
    ),
    judged(
        "logOptions",
        Object,
        "podnet writes no file of logs; the four below say why",
    ),
    fixed(
        "logOptions.maxAge",
        Number,
        NotCarried,
        "podnet writes no file of logs; the kubelet has no limit of age",
    ),
    fixed(
        "logOptions.maxSize",
        Number,
        NotCarried,
        "podnet writes no file of logs; the kubelet's limit is containerLogMaxSize",
    ),
    fixed(
        "logOptions.maxBackups",
        Number,
        NotCarried,
        "podnet writes no file of logs; the kubelet's limit is containerLogMaxFiles",
    ),
    fixed(
        "logOptions.compress",
        Flag,
        NotCarried,
        "podnet writes no file of logs; the kubelet compresses rotated ones always",
    ),
    fixed(
        "metricsPort",
        Number,
        NotCarried,
        "`--admin=ADDRESS:PORT`, 127.0.0.1:9464 when not given, serves metrics of other names, and the state of the \
         node with them: choose an address that tenants do not reach",
    ),
    judged(
        "perNodeCertificate",
        Object,
        "podnet's agents use the token of their service account; the four below say no more",
    ),
    fixed(
        "perNodeCertificate.enabled",
        Flag,
        NotCarried,
        "podnet's agents use the token of their service account; an admission policy holds each to its own node",
    ),
    fixed(
        "perNodeCertificate.bootstrapKubeconfig",
        Text,
        NotCarried,
        "podnet's agents need no kubeconfig of the node",
    ),
    fixed(
        "perNodeCertificate.certDir",
        Text,
        NotCarried,
        "podnet's agents keep no certificate",
    ),
    fixed(
        "perNodeCertificate.certDuration",
        Text,
        NotCarried,
        "podnet's agents keep no certificate; the kubelet renews the token",
    ),
    fixed(
        "forceCNIVersion",
        Flag,
        NotCarried,
        "each plugin is called in the version of its own configuration",
    ),
    fixed(
        "overrideNetworkName",
        Flag,
        NotCarried,
        "the network that the runtime knows is called podnet",
    ),
    judged(
        "cleanupConfigOnExit",
        Flag,
        "podnet's configuration stays when the agent ends; `podnet-agent cleanup` removes it",
    ),
];

/// The field of this path, in any case, as Go reads keys.
pub(crate) fn find(path: &str) -> Option<&'static Field> {
    let mut fields = FIELDS.iter();
    fields.find(|field| field.name.eq_ignore_ascii_case(path))
}
