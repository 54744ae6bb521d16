//! `podnet-agent`: the node agent and the commands that ask it.

use std::panic;
use std::process::{self, ExitCode};

use agent::cli::{Cli, Command};
use agent::{commands, run};
use clap::Parser as _;
use delegate::stage;

fn main() -> ExitCode {
    end_at_panics();
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

/// Ends the process at a panic of any thread, once it is reported.
///
/// What it left half done is mended by the next start, as after a crash. The agent that went on without a thread
/// would serve requests that nothing carries out.
fn end_at_panics() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        report(info);
        process::abort();
    }));
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;
    use std::thread;

    use super::end_at_panics;

    const CHILD: &str = "PODNET_TEST_CHILD";
    /// `SIGABRT`.
    const ABORTED: i32 = 6;

    #[test]
    fn a_panic_of_any_thread_ends_the_process_once_it_is_reported() {
        if env::var_os(CHILD).is_some() {
            end_at_panics();
            let died = thread::spawn(|| panic!("a fault of this thread")).join();
            println!("the process goes on: {died:?}");
            return;
        }
        let name = "tests::a_panic_of_any_thread_ends_the_process_once_it_is_reported";
        let mut child = Command::new(env::current_exe().expect("a path"));
        child
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, "yes");
        let ended = child.output().expect("a child");
        assert_eq!(ended.status.signal(), Some(ABORTED), "{ended:?}");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains("a fault of this thread"), "{said}");
    }
}
