//! Run `podnet-bench`, which measures podnet next to its peers.
//!
//! `cargo xtask bench` builds what it needs and starts it.

use std::process::ExitCode;

use anyhow::Result;
use bench::apps::Application;
use bench::run::{self, Options};
use bench::{against, interrupt, probe, spin};
use clap::{Parser, Subcommand};
use serde::Serialize;

#[derive(Parser)]
#[command(name = "podnet-bench", about = "Measures podnet and its peers")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Measure and report
    Run(Options),
    /// Measure two commits in alternating rounds (used by `bench --against`)
    #[command(hide = true)]
    Against(against::Options),
    /// Send what an order says (used by `run`)
    #[command(hide = true)]
    Probe {
        /// JSON
        order: String,
    },
    /// Send by several ways in turns (used by `run`)
    #[command(hide = true)]
    Turns {
        /// JSON
        order: String,
    },
    /// Compute until the parent is gone (used by `run`)
    #[command(hide = true)]
    Spin,
    /// Be the application of a pod (used by `run`)
    #[command(hide = true, subcommand)]
    App(Application),
}

fn main() -> ExitCode {
    let done = match Cli::parse().verb {
        Verb::Run(options) => run::run(&options),
        Verb::Against(options) => against::run(&options),
        Verb::Probe { order } => probe::obey(&order).and_then(|found| answer(&found)),
        Verb::Turns { order } => probe::take_turns(&order).and_then(|found| answer(&found)),
        Verb::Spin => {
            spin::spin();
            Ok(true)
        }
        Verb::App(application) => application.run().map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) if interrupt::wanted() => {
            eprintln!("bench: {error:#}; everything was taken down");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("bench: error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn answer(found: &impl Serialize) -> Result<bool> {
    println!("{}", serde_json::to_string(found)?);
    Ok(true)
}
