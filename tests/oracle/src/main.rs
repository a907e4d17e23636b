//! `oracle`: random sequences, model against engine, repeatable by a seed.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use oracle::account;
use oracle::generate::Features;
use oracle::model::Column;
use oracle::search::{Search, find};

/// Compares the engine with the model over random sequences of operations.
#[derive(Parser)]
struct Arguments {
    /// How many operations at least.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    operations: u64,
    /// What the sequences are made from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Which contract: ndk or nd.
    #[arg(long, default_value = "ndk", value_parser = ["ndk", "nd"])]
    column: String,
    /// Lines of one sequence.
    #[arg(long, default_value_t = 150, value_parser = length)]
    length: usize,
    /// Partial service passes between the lines; only the number and order of results is compared.
    #[arg(long)]
    behind: bool,
    /// Run on this driver image, in the kernel host, instead of the engine (column ndk).
    #[cfg(not(windows))]
    #[arg(long, conflicts_with_all = ["column", "behind"])]
    image: Option<PathBuf>,
    /// Which of the image's NDK calls pend.
    #[cfg(not(windows))]
    #[arg(long, value_enum, default_value_t, requires = "image")]
    completion_mode: ndkctl::arguments::CompletionMode,
    /// Where a difference is written.
    #[arg(long, default_value = "target/oracle.ndkreplay")]
    output: PathBuf,
}

/// A sequence without a line compares nothing.
fn length(text: &str) -> Result<usize, String> {
    let length = text.parse().map_err(|_| "not a number of lines")?;
    if length == 0 { Err("a sequence has at least one line".to_owned()) } else { Ok(length) }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let column = if arguments.column == "nd" { Column::Nd } else { Column::Ndk };
    let begun = Instant::now();
    #[cfg(not(windows))]
    if let Some(image) = &arguments.image {
        return on_image(&arguments, image, begun);
    }
    let mut shown = 0;
    let search = Search {
        operations: arguments.operations,
        seed: arguments.seed,
        column,
        length: arguments.length,
        features: Features::ALL,
    };
    let mut progress = |done| {
        if done / 1_000_000 > shown {
            shown = done / 1_000_000;
            eprintln!("{done} operations, {:.0} s", begun.elapsed().as_secs_f64());
        }
    };
    let found = if arguments.behind { account::find(&search) } else { find(&search, &mut progress) };
    let seconds = begun.elapsed().as_secs_f64();
    let differences = u32::from(found.difference.is_some());
    if let Some(difference) = &found.difference {
        println!("{difference}");
        match std::fs::write(&arguments.output, format!("{difference}\n")) {
            Ok(()) => println!("written to {}", arguments.output.display()),
            Err(error) => println!("not written: {error}"),
        }
    }
    println!(
        "oracle: {} operations, seed {}, {differences} differences, {seconds:.1} s",
        found.operations, arguments.seed
    );
    if differences == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The same through the replay session of the loaded image.
#[cfg(not(windows))]
fn on_image(arguments: &Arguments, image: &std::path::Path, begun: Instant) -> ExitCode {
    let outcome = match oracle::image::run(
        image,
        arguments.completion_mode,
        arguments.operations,
        arguments.seed,
        arguments.length,
    ) {
        Ok(outcome) => outcome,
        Err(failure) => {
            eprintln!("{failure}");
            return ExitCode::FAILURE;
        }
    };
    let differences = u32::from(outcome.difference.is_some());
    if let Some(script) = &outcome.difference {
        let text = script.iter().fold(String::new(), |text, line| text + &line.to_string() + "\n");
        match std::fs::write(&arguments.output, &text) {
            Ok(()) => println!("{text}# the last line differs; written to {}", arguments.output.display()),
            Err(error) => println!("{text}# the last line differs; not written: {error}"),
        }
    }
    println!(
        "oracle: {} operations, seed {}, {differences} differences, {:.1} s",
        outcome.operations,
        arguments.seed,
        begun.elapsed().as_secs_f64()
    );
    if differences == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
