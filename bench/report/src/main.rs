//! `podnet-report`: shows the results of runs of `podnet-bench`.
//!
//! `cargo xtask bench report` and `cargo xtask bench tables` start it.

use std::path::{Path, PathBuf};

use anyhow::Result;
use bench_report::{generated, html, store, text};
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "podnet-report",
    about = "Shows what runs of podnet-bench have found"
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Print a run's tables and write a page with its charts
    Report {
        /// The JSON file of a run; without it the run in bench/results
        run: Option<PathBuf>,
        /// Where the page goes
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Write docs/performance.md, its picture and the README's table from bench/results
    Tables,
}

fn main() -> Result<()> {
    match Cli::parse().verb {
        Verb::Report { run, out } => page(run.as_deref(), &out),
        Verb::Tables => {
            let written = generated::bless()?;
            for path in &written {
                println!("wrote {path}");
            }
            if written.is_empty() {
                println!("all documents have the figures of the run in bench/results");
            }
            Ok(())
        }
    }
}

fn page(run: Option<&Path>, out: &Path) -> Result<()> {
    let report = run.map_or_else(generated::current, store::read)?;
    print!("{}", text::report(&report));
    store::put(out, &html::page(&report))?;
    println!("page: {}", out.display());
    Ok(())
}
