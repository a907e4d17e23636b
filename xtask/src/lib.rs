//! The commands behind `cargo xtask`, the same for developers and in CI.
//!
//! One file a sub-command; what several commands share lives under the thing it is about (`cross` for the cross build of
//! the driver, `image_check` for the rules of the finished image), or in `softndk-images` where tests need it as well.
//! Commands are quiet when all is well: they print one line for what they made, and on failure the cause and the next step.

pub mod arguments;
pub mod bad_drivers;
mod bench;
pub mod book;
#[cfg(unix)]
pub mod c_consumer;
mod cargo_tool;
pub mod child;
pub mod clippy;
mod commit;
pub mod conformance;
pub mod coverage;
pub mod cross;
pub mod demo;
pub mod driver;
pub mod fuzz;
mod host_cargo;
mod host_pair;
pub mod image_check;
mod import_list;
pub mod inf;
#[cfg(unix)]
pub mod interop;
pub mod mutants;
pub mod networkdirect;
pub mod oracle;
#[cfg(unix)]
pub mod own_driver;
#[cfg(unix)]
pub mod own_program;
pub mod package;
#[cfg(unix)]
pub mod pictures;
mod processes;
mod progress;
pub mod prune;
pub mod repeat;
pub mod rules;
pub mod seeded_bugs;
pub mod setup;
pub mod skipped;
pub mod soak;
pub mod softnd;
mod stages;
pub mod stress;
pub mod test;
mod test_binary;
mod test_log;
pub mod tools;
pub mod verify;
#[cfg(unix)]
pub mod wine;

use clap::{Parser, Subcommand};
#[cfg(target_os = "linux")]
pub use processes::{end_with_children_on_signals, wait_for_the_end_on_a_signal};
pub use softndk_images::{arch, command, workspace};

/// Build, check and run softndk.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Setup(setup::SetupArguments),
    Driver(driver::DriverArguments),
    CheckImage(image_check::ImageCheckArguments),
    BadDrivers(bad_drivers::BadDriversArguments),
    #[cfg(unix)]
    CConsumer(c_consumer::CConsumerArguments),
    Clippy(clippy::ClippyArguments),
    Conformance(conformance::ConformanceArguments),
    Coverage(coverage::CoverageArguments),
    Rules(rules::RulesArguments),
    Arguments(arguments::ArgumentsArguments),
    SeededBugs(seeded_bugs::SeededBugsArguments),
    Mutants(mutants::MutantsArguments),
    Tools(tools::ToolsArguments),
    Test(test::TestArguments),
    Check(test::CheckArguments),
    Soak(soak::SoakArguments),
    Networkdirect(networkdirect::NetworkdirectArguments),
    Softnd(softnd::SoftndArguments),
    Bench(bench::BenchArguments),
    Book(book::BookArguments),
    Demo(demo::DemoArguments),
    Package(package::PackageArguments),
    Oracle(oracle::OracleArguments),
    #[cfg(unix)]
    OwnDriver(own_driver::OwnDriverArguments),
    #[cfg(unix)]
    OwnProgram(own_program::OwnProgramArguments),
    #[cfg(unix)]
    Pictures(pictures::PicturesArguments),
    Verify(verify::VerifyArguments),
    Stress(stress::StressArguments),
    Repeat(repeat::RepeatArguments),
    Prune(prune::PruneArguments),
    Fuzz(fuzz::FuzzArguments),
    #[cfg(unix)]
    Interop(interop::InteropArguments),
    #[cfg(unix)]
    Wine(wine::WineArguments),
}

/// Ends the program with an error, not with a panic, when its output cannot be written: `cargo xtask rules > /full/disk`.
///
/// Everything goes through `println!`, which can only panic.
pub fn fail_when_output_is_lost() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if let Some(why) = panic.payload_as_str().and_then(|said| said.strip_prefix("failed printing to stdout: ")) {
            eprintln!("error: cannot write to standard output: {why}");
            std::process::exit(1);
        }
        before(panic);
    }));
}

/// Runs the command that was asked for.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.command {
        Command::Setup(arguments) => setup::run(arguments),
        Command::Driver(arguments) => driver::run(arguments),
        Command::CheckImage(arguments) => image_check::run(arguments),
        Command::BadDrivers(arguments) => bad_drivers::run(arguments),
        #[cfg(unix)]
        Command::CConsumer(arguments) => c_consumer::run(arguments),
        Command::Clippy(arguments) => clippy::run(arguments),
        Command::Conformance(arguments) => conformance::run(arguments),
        Command::Coverage(arguments) => coverage::run(arguments),
        Command::Rules(arguments) => rules::run(arguments),
        Command::Arguments(arguments) => arguments::run(arguments),
        Command::SeededBugs(arguments) => seeded_bugs::run(arguments),
        Command::Mutants(arguments) => mutants::run(arguments),
        Command::Tools(arguments) => tools::run(arguments),
        Command::Test(arguments) => test::run(arguments),
        Command::Check(arguments) => test::check(arguments),
        Command::Soak(arguments) => soak::run(arguments),
        Command::Networkdirect(arguments) => networkdirect::run(arguments),
        Command::Softnd(arguments) => softnd::run(arguments),
        Command::Bench(arguments) => bench::run(arguments),
        Command::Book(arguments) => book::run(arguments),
        Command::Demo(arguments) => demo::run(arguments),
        Command::Package(arguments) => package::run(arguments),
        Command::Oracle(arguments) => oracle::run(arguments),
        #[cfg(unix)]
        Command::OwnDriver(arguments) => own_driver::run(arguments),
        #[cfg(unix)]
        Command::OwnProgram(arguments) => own_program::run(arguments),
        #[cfg(unix)]
        Command::Pictures(arguments) => pictures::run(arguments),
        Command::Verify(arguments) => verify::run(arguments),
        Command::Stress(arguments) => stress::run(arguments),
        Command::Repeat(arguments) => repeat::run(arguments),
        Command::Prune(arguments) => prune::run(arguments),
        Command::Fuzz(arguments) => fuzz::run(arguments),
        #[cfg(unix)]
        Command::Interop(arguments) => interop::run(arguments),
        #[cfg(unix)]
        Command::Wine(arguments) => wine::run(arguments),
    }
}
