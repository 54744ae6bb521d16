//! `podnet-agent`: the node agent and the commands that ask it.

use std::process::ExitCode;

use agent::cli::{Cli, Command};
use agent::{commands, run};
use clap::Parser as _;
use delegate::stage;

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(options) => run::run(*options),
        Command::Get(options) => commands::get(&options),
        Command::Explain(options) => commands::explain(&options),
        Command::Capture(options) => commands::capture(&options),
        Command::Cleanup(options) => commands::cleanup(&options),
        Command::ImportMultus(options) => commands::import(&options),
        // It has said itself why it comes back.
        Command::ExecPlugin(options) => {
            Err(stage::exec(&options.host_root, &options.program).into())
        }
        Command::Controller(options) => controller::run(options),
        Command::Webhook(options) => webhook::run(&options),
        Command::Switch(options) => commands::switch(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            commands::complain(&error);
            ExitCode::FAILURE
        }
    }
}
