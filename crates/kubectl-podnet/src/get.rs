//! Show tables of agents.

use std::process::ExitCode;
use std::thread;

use serde_json::{Map, Value};

use crate::agents::{self, Agent};
use crate::cli::{GetOptions, Output};
use crate::error::PluginError;
use crate::kubectl::Kubectl;
use crate::print;

/// Agents that are asked at a time.
const AT_ONCE: usize = 8;

/// Prints the table of each node.
///
/// A node that does not answer fails the command and leaves the other tables.
///
/// # Errors
/// No agents are there.
pub(crate) fn run(kubectl: &Kubectl, options: &GetOptions) -> Result<ExitCode, PluginError> {
    let agents = agents::of(kubectl, &options.node)?;
    let table = options.table.name();
    let words: &[&str] = match options.output {
        Output::Table => &["get", table],
        Output::Json => &["get", table, "--output=json"],
    };
    let answers = ask(&agents, |agent| agent.text(kubectl, words));
    let mut whole = true;
    let mut rows = Map::new();
    for (agent, answer) in agents.iter().zip(answers) {
        match answer {
            Err(error) => {
                whole = false;
                eprintln!("kubectl podnet: node {}: {error}", agent.node);
            }
            Ok(text) if options.output == Output::Json => {
                let value = serde_json::from_str(&text).map_err(|error| {
                    let words = agent.exec(kubectl, words);
                    kubectl.form(&agents::borrow(&words), &error.to_string())
                })?;
                rows.insert(agent.node.clone(), value);
            }
            Ok(text) => print(&section(&agent.node, &text, agents.len()))?,
        }
    }
    if options.output == Output::Json {
        print(&format!("{:#}\n", Value::Object(rows)))?;
    }
    Ok(if whole {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The table of a node, under its name where there are several.
fn section(node: &str, text: &str, of: usize) -> String {
    let text = text.trim_end();
    if of == 1 {
        format!("{text}\n")
    } else {
        format!("== {node} ==\n{text}\n\n")
    }
}

/// Asks agents, some at a time; answers are in the order of the agents.
pub(crate) fn ask<T: Send>(agents: &[Agent], ask: impl Fn(&Agent) -> T + Sync) -> Vec<T> {
    let mut answers = Vec::new();
    for some in agents.chunks(AT_ONCE) {
        thread::scope(|scope| {
            let asked: Vec<_> = some
                .iter()
                .map(|agent| scope.spawn(|| ask(agent)))
                .collect();
            for one in asked {
                answers.push(
                    one.join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                );
            }
        });
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_named_where_there_are_several() {
        assert_eq!(section("n1", "A  B\n1  2\n", 1), "A  B\n1  2\n");
        assert_eq!(section("n1", "A  B\n", 2), "== n1 ==\nA  B\n\n");
    }

    #[test]
    fn answers_are_in_the_order_of_the_agents_however_many_these_are() {
        let agents: Vec<Agent> = (0..20)
            .map(|number| Agent {
                pod: format!("p{number}"),
                node: format!("n{number}"),
            })
            .collect();
        let nodes = ask(&agents, |agent| agent.node.clone());
        let wanted: Vec<String> = agents.into_iter().map(|agent| agent.node).collect();
        assert_eq!(nodes, wanted);
    }
}
