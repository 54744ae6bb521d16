//! Compares the tables of `docs/errors.md` and `docs/metrics.md` with the code.
//!
//! When one of these tests fails, write the files again: `BLESS=1 cargo test -p agent --test docs`.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use agent::cni::error::{CODES, Code, SPEC_CODES};
use agent_common::drop::DropReason;
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
