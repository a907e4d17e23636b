//! Runs a driver of others beside an NDK provider:
//!
//! ```text
//! foreign_driver PROVIDER INX DRIVER [--adapter INDEX=ADDRESS[,ADDRESS…]]… [--keyword NAME=VALUE]…
//!                [--parameter NAME=VALUE]… [--seconds N] [--trace ndk]
//! ```
//!
//! Each adapter gets the interface index and the IP addresses that it is given; each keyword is a value of every adapter's
//! registry key, as its INF declares it (`docs/registry.md`); each parameter is a value below the driver's `Parameters` key, a
//! number or text. After N seconds of the kernel's time (10) the driver is unloaded; the calls and requests that failed are printed
//! with the reason, and what it left. `--trace ndk`
//! writes a line for each NDK call and callback. The bugcheck of a broken rule ends the process with 113. `docs/own-driver.md`
//! leads through all of it.

use std::error::Error;
use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use kernel_host::inf::{AdapterConfig, Inx};
use kernel_host::{Kernel, KernelConfig, registry};

use crate::refusals;

const USAGE: &str = "usage: foreign_driver PROVIDER INX DRIVER [--adapter INDEX=ADDRESS[,ADDRESS…]]… \
                     [--keyword NAME=VALUE]… [--parameter NAME=VALUE]… [--seconds N] [--trace ndk]";
const SERVICE: &str = "foreign";

#[derive(Default)]
struct Words {
    files: Vec<String>,
    adapters: Vec<(u32, Vec<IpAddr>)>,
    keywords: Vec<(String, String)>,
    parameters: Vec<(String, String)>,
    trace_ndk: bool,
    seconds: Option<u64>,
}

pub fn main() -> ExitCode {
    match parse().and_then(|words| run(&words)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

fn parse() -> Result<Words, Box<dyn Error>> {
    let mut words = Words::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if !argument.starts_with("--") {
            words.files.push(argument);
            continue;
        }
        let value = arguments.next().ok_or(USAGE)?;
        let pair = value.split_once('=').ok_or(USAGE);
        match argument.as_str() {
            "--adapter" => {
                let (index, addresses) = pair?;
                let addresses: Result<_, _> = addresses.split(',').map(str::parse).collect();
                words.adapters.push((index.parse()?, addresses?));
            }
            "--keyword" => {
                let (name, value) = pair?;
                words.keywords.push((name.to_owned(), value.to_owned()));
            }
            "--trace" if value == "ndk" => words.trace_ndk = true,
            "--parameter" => {
                let (name, value) = pair?;
                words.parameters.push((name.to_owned(), value.to_owned()));
            }
            "--seconds" => words.seconds = Some(value.parse()?),
            _ => return Err(USAGE.into()),
        }
    }
    Ok(words)
}

fn file_name(path: &str) -> String {
    Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn run(words: &Words) -> Result<ExitCode, Box<dyn Error>> {
    let [provider, inx, driver] = words.files.as_slice() else { return Err(USAGE.into()) };
    let inx = Inx::load(inx)?;
    let mut config = KernelConfig { debug_output: true, ..KernelConfig::default() };
    config.trace_ndk |= words.trace_ndk;
    let kernel = Kernel::boot(config);
    refusals::add_to_reports(&file_name(provider));
    let provider = kernel.load_driver(provider, "provider")?;
    for (index, addresses) in &words.adapters {
        let mut config = AdapterConfig::from_inx(&inx)?.with_if_index(*index);
        for (name, value) in &words.keywords {
            if !config.has_keyword(name) {
                return Err(format!("the INF declares no keyword {name}").into());
            }
            config = config.with_keyword(name, value);
        }
        for address in addresses {
            config = config.with_address(*address, if address.is_ipv4() { 24 } else { 64 });
        }
        kernel.add_adapter(&provider, config)?;
    }
    let parameters = registry::parameters_path(SERVICE);
    registry::create(&parameters);
    for (name, value) in &words.parameters {
        match value.parse::<u32>() {
            Ok(number) => registry::set(&parameters, name, number),
            Err(_) => registry::set(&parameters, name, value.as_str()),
        }
    }
    let driver = kernel.load_driver(driver, SERVICE)?;
    kernel.sleep(Duration::from_secs(words.seconds.unwrap_or(10)));
    driver.unload();
    refusals::print();
    provider.unload();
    let report = kernel.shutdown();
    print!("{report}");
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
