//! Compares the generated pages of `docs` with the code.
//!
//! When one of these tests fails, write the files again: `BLESS=1 cargo test -p agent --test docs`.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use agent::cli::Cli;
use agent::cni::error::{CODES, Code, SPEC_CODES};
use agent_common::drop::DropReason;
use clap::{Arg, Command, CommandFactory as _};
use metrics::METRICS;

/// Name, type, labels and meaning.
type Metric = (&'static str, &'static str, &'static str, &'static str);

fn codes(text: &mut String, codes: &[Code]) {
    text.push_str("| Code | Meaning | What to do |\n|---:|---|---|\n");
    for (number, meaning, advice) in codes {
        writeln!(text, "| {number} | {meaning} | {advice} |").expect("a string takes everything");
    }
}

fn errors() -> String {
    let mut text = String::from(
        "# Errors\n\
         \n\
         Generated from `agent/src/cni/error.rs` by `BLESS=1 cargo test -p agent --test docs`.\n\
         \n\
         When a CNI command fails, `podnet` exits with 1 and prints one JSON object on standard\n\
         output, whatever the command:\n\
         \n\
         ```json\n\
         {\"cniVersion\": \"1.1.0\", \"code\": 100,\n \
         \"msg\": \"network blue: no free IPv4 address in 10.10.0.0/29: all 5 are held; add a subnet, or detach pods\",\n \
         \"details\": \"…; podnet request 42\"}\n\
         ```\n\
         \n\
         `msg` is for people: it names the field that is wrong and says what to write instead.\n\
         `details` adds the causes. The request number finds the lines of the agent's log:\n\
         they have `request=42`.\n\
         \n\
         An error of `DEL` never contains `not found` or `no such file or directory`: some runtimes\n\
         take these words for success.\n\
         \n\
         ## Codes of CNI\n\
         \n\
         Their meaning is set by CNI SPEC section 5; 8 comes from libcni.\n\
         \n",
    );
    codes(&mut text, SPEC_CODES);
    text.push_str("\n## Codes of podnet\n\n");
    codes(&mut text, CODES);
    text
}

fn meanings(text: &mut String, metrics: &[Metric]) {
    for (name, kind, labels, meaning) in metrics {
        let labels: Vec<String> = labels
            .split(", ")
            .filter(|label| !label.is_empty())
            .map(|label| format!("`{label}`"))
            .collect();
        writeln!(
            text,
            "| `{name}` | {kind} | {} | {meaning} |",
            labels.join(", ")
        )
        .expect("a string takes everything");
    }
}

fn metrics() -> String {
    let mut text = String::from(
        "# Metrics\n\
         \n\
         Generated from `crates/metrics/src/lib.rs` by `BLESS=1 cargo test -p agent --test docs`.\n\
         \n\
         The agent serves them on `http://<--admin>/metrics`, by default `127.0.0.1:9464`, in\n\
         Prometheus text format 0.0.4.\n\
         \n\
         | Name | Type | Labels | Meaning |\n\
         |---|---|---|---|\n",
    );
    meanings(&mut text, METRICS);
    text.push_str(
        "\n\
         `network` is the name of the PodNetwork. It is `#<number>` for a number whose name is not\n\
         known any more, and empty for packets from an interface that is no port.\n\
         \n\
         Counters of drops live in the kernel and go on while no agent runs. A restart of the agent\n\
         keeps them, a move to another map layout carries them over, a reboot does not.\n\
         Counters of requests begin at zero with each start of the agent.\n\
         Those of memif ports are the switch's. They go on while the agent restarts and when the switch is\n\
         replaced, and begin at zero with one that takes the place of one that died. `pod` is the id of the\n\
         container where the runtime has named no pod.\n\
         \n\
         ## Values of `reason`\n\
         \n\
         What each means, and how it is counted, is in\n\
         [datapath.md](datapath.md#drop-reasons).\n\
         \n",
    );
    let labels: Vec<String> = DropReason::ALL
        .iter()
        .map(|reason| format!("`{}`", reason.label()))
        .collect();
    text.push_str(&labels.join(", "));
    text.push_str(".\n");
    for (program, metrics) in [
        ("controller", controller::metrics::METRICS),
        ("webhook", webhook::METRICS),
    ] {
        write!(
            text,
            "\n## Metrics of `podnet-agent {program}`\n\n\
             | Name | Type | Labels | Meaning |\n\
             |---|---|---|---|\n"
        )
        .expect("a string takes everything");
        meanings(&mut text, metrics);
    }
    text
}

fn options() -> String {
    let mut text = String::from(
        "# Options\n\
         \n\
         Generated from the command line of `podnet-agent` by `BLESS=1 cargo test -p agent --test docs`.\n\
         What an operator has to decide is in [operations.md](operations.md).\n\
         \n\
         An option wins over its variable, and that over the default. `podnet-agent COMMAND --help` says\n\
         the same.\n",
    );
    let cli = Cli::command();
    for command in cli.get_subcommands().filter(|it| !it.is_hide_set()) {
        describe(&mut text, command);
    }
    text
}

fn describe(text: &mut String, command: &Command) {
    let about = command.get_long_about().or(command.get_about());
    let about = about.expect("a command says what it does").to_string();
    write!(
        text,
        "\n## `podnet-agent {}`\n\n{}.\n\n\
         | Option | Variable | Default | Meaning |\n\
         |---|---|---|---|\n",
        command.get_name(),
        sentences(&about),
    )
    .expect("a string takes everything");
    for argument in command.get_arguments().filter(|it| !it.is_hide_set()) {
        let cell = |words: Vec<String>| {
            let quoted = words.iter().map(|word| format!("`{word}`"));
            quoted.collect::<Vec<_>>().join(", ")
        };
        let variable = argument.get_env().map(|name| name.to_string_lossy().into());
        let defaults = argument.get_default_values().iter();
        // A flag is off unless it is given.
        let defaults = defaults.filter(|_| takes_value(argument));
        let defaults = defaults.map(|value| value.to_string_lossy().into());
        writeln!(
            text,
            "| `{}` | {} | {} | {} |",
            written(argument),
            cell(variable.into_iter().collect()),
            cell(defaults.collect()),
            meaning(argument),
        )
        .expect("a string takes everything");
    }
}

fn takes_value(argument: &Arg) -> bool {
    argument.get_action().takes_values()
}

/// An option as it is written on the command line.
fn written(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    let value = names.first().map_or("VALUE", |name| name.as_str());
    match argument.get_long() {
        None => value.to_owned(),
        Some(long) if takes_value(argument) => format!("--{long} {value}"),
        Some(long) => format!("--{long}"),
    }
}

fn meaning(argument: &Arg) -> String {
    let help = argument.get_long_help().or(argument.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let mut meaning = sentences(&help);
    let values = argument.get_possible_values();
    let is_flag = !takes_value(argument) || values.iter().any(|it| it.get_name() == "true");
    if !is_flag && !values.is_empty() {
        meaning.push_str(". One of ");
        let values = values.iter().filter(|it| !it.is_hide_set()).map(|value| {
            let help = value.get_help().map(|help| format!(" ({help})"));
            format!("`{}`{}", value.get_name(), help.unwrap_or_default())
        });
        meaning.push_str(&values.collect::<Vec<_>>().join(", "));
    }
    meaning.replace('|', "\\|")
}

/// A text of several paragraphs in one line, without the full stop at its end.
fn sentences(text: &str) -> String {
    let paragraphs = text.split("\n\n");
    let lines =
        paragraphs.map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "));
    let lines: Vec<String> = lines
        .map(|line| line.trim_end_matches('.').to_owned())
        .filter(|line| !line.is_empty())
        .collect();
    lines.join(". ")
}

fn check(name: &str, now: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../docs")
        .join(name);
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, now).expect("docs can be written");
        return;
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == now,
        "docs/{name} is stale: write it anew with `BLESS=1 cargo test -p agent --test docs`"
    );
}

#[test]
fn errors_md_is_what_the_code_says() {
    check("errors.md", &errors());
}

#[test]
fn metrics_md_is_what_the_code_says() {
    check("metrics.md", &metrics());
}

#[test]
fn options_md_is_what_the_code_says() {
    check("options.md", &options());
}

/// Each option says what it is about, in one line of the table.
#[test]
fn every_option_has_a_meaning() {
    let text = options();
    for (option, command) in [
        ("--reclaim-delay SECONDS", "controller"),
        ("--restart-lease SECONDS", "run"),
        ("--client-ca-file", "webhook"),
        ("--busy-poll", "switch"),
    ] {
        let of_command = text.split(&format!("## `podnet-agent {command}`")).nth(1);
        let of_command = of_command.and_then(|text| text.split("\n## ").next());
        let row = format!("| `{option}");
        assert!(
            of_command.is_some_and(|text| text.contains(&row)),
            "{option}"
        );
    }
    for row in text.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = row.split(" | ").collect();
        assert!(
            cells.len() >= 4 && !cells[3].trim_matches([' ', '|']).is_empty(),
            "{row}"
        );
    }
}

/// A table of Markdown has one line for each row, and a bar ends a cell.
#[test]
fn meanings_fit_a_table() {
    let codes = SPEC_CODES
        .iter()
        .chain(CODES)
        .flat_map(|(_, meaning, advice)| [*meaning, *advice]);
    let metrics = [METRICS, controller::metrics::METRICS, webhook::METRICS].concat();
    for text in codes.chain(metrics.iter().map(|(.., meaning)| *meaning)) {
        assert!(!text.is_empty() && !text.contains(['|', '\n']), "{text:?}");
    }
}
