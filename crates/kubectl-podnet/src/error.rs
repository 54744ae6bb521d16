//! Name the reasons for which the plugin cannot answer.

use std::io;

/// The plugin has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PluginError {
    /// kubectl is not there, or not executable.
    #[error("cannot start {program} ({source}): install kubectl, or let KUBECTL name it")]
    Start {
        /// The program.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// kubectl has failed; its own words follow the command.
    #[error("`{command}` failed: {complaint}")]
    Kubectl {
        /// The command.
        command: String,
        /// Its standard error.
        complaint: String,
    },
    /// kubectl did not end.
    #[error("`{command}` did not end within {seconds} s: ask again with a longer --timeout")]
    Late {
        /// The command.
        command: String,
        /// The limit.
        seconds: u64,
    },
    /// The output is longer than its limit.
    #[error("`{command}` printed more than {limit} bytes: name one node by --node")]
    Long {
        /// The command.
        command: String,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The output of kubectl or of an agent is of another form.
    #[error(
        "`{command}` printed no such JSON as this plugin knows ({reason}): use the plugin of the \
         agents' release"
    )]
    Form {
        /// The command.
        command: String,
        /// Reason for which it is not read.
        reason: String,
    },
    /// No agents are there.
    #[error(
        "no pod of podnet-agent is in namespace {namespace}: name podnet's namespace by \
         --podnet-namespace"
    )]
    NoAgents {
        /// The namespace.
        namespace: String,
    },
    /// A node has no agent.
    #[error("node {node} has no running agent; nodes with one: {others}")]
    NoAgent {
        /// The node.
        node: String,
        /// The others.
        others: String,
    },
    /// The pod has no node yet.
    #[error("pod {pod} has no node: wait until it is scheduled")]
    Unscheduled {
        /// The pod.
        pod: String,
    },
    /// The agent knows no such attachment.
    #[error("pod {pod} has no attachment {wanted} on node {node}; it has: {others}")]
    NoAttachment {
        /// The pod.
        pod: String,
        /// The interface or network that was asked for.
        wanted: String,
        /// Its node.
        node: String,
        /// Its attachments.
        others: String,
    },
    /// The pods are on no common network.
    #[error("{from} and {to} have no network in common: {from} is on {left}, {to} on {right}")]
    Apart {
        /// The sender.
        from: String,
        /// The receiver.
        to: String,
        /// Networks of the sender.
        left: String,
        /// Networks of the receiver.
        right: String,
    },
    /// The pods are on several common networks.
    #[error("{from} and {to} have several networks in common ({networks}): name one by --network")]
    Several {
        /// The sender.
        from: String,
        /// The receiver.
        to: String,
        /// The networks.
        networks: String,
    },
    /// Two attachments have no address of a common family.
    #[error("{from} and {to} have no addresses of one family on {network}")]
    Families {
        /// The sender.
        from: String,
        /// The receiver.
        to: String,
        /// Their network.
        network: String,
    },
    /// A capture would be written to a terminal.
    #[error(
        "a capture is binary: write it to a file by -w, or pipe it, as in `… | wireshark -k -i -`"
    )]
    Terminal,
    /// A file.
    #[error("cannot {operation} {path}: {source}")]
    File {
        /// Verb of the failed operation.
        operation: &'static str,
        /// With which file.
        path: String,
        /// The system's error.
        source: io::Error,
    },
}
