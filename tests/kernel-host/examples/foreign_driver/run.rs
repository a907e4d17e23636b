//! One run in this process: the machine, the driver on it, and what is wrong at the end.

use std::time::Duration;

use kernel_host::fault;
use kernel_host::inf::AdapterConfig;
use kernel_host::ntoskrnl::debug_print;
use kernel_host::{Kernel, KernelConfig, LoadError, registry};
use serde_json::{Value, json};
use softndk_images::driver_run::RunAdapter;

use crate::case::{Case, Fault};
use crate::children::{CHILD, RECORD_PREFIX, RECORD_SITES};
use crate::program::{Unusable, Words, file_name};
use crate::refusals;

/// A line of the driver's debug output that begins so fails the run.
const FAILED: &str = "TEST-FAILED";
const SERVICE: &str = "foreign";

/// Runs a case; the exit code. A bugcheck ends the process.
pub fn here(words: &Words, case: &Case, adapter: AdapterConfig) -> Result<u8, Unusable> {
    let mut config = KernelConfig { debug_output: true, schedule: case.seed, ..KernelConfig::default() };
    config.trace_ndk |= words.run.trace.is_some();
    let kernel = Kernel::boot(config);
    debug_print::keep();
    refusals::add_to_reports(&file_name(&words.provider));
    let provider = kernel.load_driver(&words.provider, "provider")?;
    let mut adapter = adapter;
    let named = words.run.keywords.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in named.chain(case.keywords.iter().map(|(name, value)| (*name, value.as_str()))) {
        adapter = adapter.with_keyword(name, value);
    }
    for RunAdapter { index, addresses } in words.run.adapters() {
        let mut adapter = adapter.clone().with_if_index(index);
        for address in addresses {
            adapter = adapter.with_address(address, if address.is_ipv4() { 24 } else { 64 });
        }
        kernel.add_adapter(&provider, adapter)?;
    }
    write_parameters(words);
    let mut sites = Sites::start(words, case);
    let entry_failed = live(words, &kernel, &mut sites)?;
    let fault_met = sites.stop();
    provider.unload();
    let refused = refusals::all();
    refusals::print(&refused);
    let left = kernel.shutdown();
    print!("{left}");
    let mut reasons = Vec::new();
    // A driver may fail, and say so, when a call of it was made to.
    if !fault_met {
        reasons.extend(entry_failed);
        reasons.extend(complaints(words));
    }
    if !left.is_clean() {
        reasons.push(format!("something is left after the unload: {}", first_line(&left.to_string())));
    }
    for reason in &reasons {
        println!("failed: {reason}");
    }
    if std::env::var_os(CHILD).is_some() {
        let refused: Vec<Value> = refused.iter().map(refusals::Shown::as_json).collect();
        println!(
            "{RECORD_PREFIX}{}",
            json!({
                "reasons": reasons, "refused": refused, "sites": sites.seen, "fault_met": fault_met,
            })
        );
    }
    Ok(u8::from(!reasons.is_empty()))
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim_start_matches("left: ").to_owned()
}

fn write_parameters(words: &Words) {
    let parameters = registry::parameters_path(SERVICE);
    registry::create(&parameters);
    for (name, value) in &words.run.parameters {
        match value.parse::<u32>() {
            Ok(number) => registry::set(&parameters, name, number),
            Err(_) => registry::set(&parameters, name, value.as_str()),
        }
    }
}

/// Loads the driver, lets it live and unloads it; the failure of its entry point.
fn live(words: &Words, kernel: &Kernel, sites: &mut Sites) -> Result<Option<String>, Unusable> {
    match kernel.load_driver(&words.driver, SERVICE) {
        Ok(driver) => {
            kernel.sleep(Duration::from_secs(words.run.seconds));
            // With the names of functions, while the image is there.
            sites.record();
            driver.unload();
            sites.record();
            Ok(None)
        }
        Err(error @ LoadError::DriverEntry(_)) => {
            sites.record();
            Ok(Some(error.to_string()))
        }
        Err(error) => Err(error.into()),
    }
}

/// What the driver's debug output says against the run.
fn complaints(words: &Words) -> Vec<String> {
    let name = words.driver_name();
    let own = debug_print::kept().into_iter().filter(|printed| printed.image == name);
    let output: String = own.map(|printed| printed.text).collect();
    let failures = output.lines().map(str::trim).filter(|line| line.starts_with(FAILED));
    let failures = failures.map(|line| format!("the driver says: {line}"));
    let missing = words.run.expect.iter().filter(|text| !output.contains(text.as_str()));
    let missing = missing.map(|text| format!("its debug output has no {text:?}, which --expect asks for"));
    failures.chain(missing).collect()
}

/// The driver's calls that may fail.
struct Sites {
    records: bool,
    before: u64,
    seen: Vec<Value>,
}

impl Sites {
    fn start(words: &Words, case: &Case) -> Self {
        let records = std::env::var(CHILD).is_ok_and(|what| what == RECORD_SITES);
        if records || case.fault.is_some() {
            fault::start_recording_calls_of(&words.driver_name());
        }
        if let Some(Fault { site, hit }) = case.fault {
            fault::fail(site, hit);
        }
        Self { records, before: fault::failures(), seen: Vec::new() }
    }

    /// Adds what was not seen before.
    fn record(&mut self) {
        if !self.records {
            return;
        }
        for record in fault::sites() {
            let number = json!(format!("{:#018x}", record.site.0));
            if let Some(known) = self.seen.iter_mut().find(|known| known["site"] == number) {
                known["hits"] = json!(record.hits);
                continue;
            }
            let frames = kernel_host::image::stack_trace::name(&record.stack);
            let stack: Vec<String> = frames.iter().map(ToString::to_string).collect();
            self.seen.push(json!({ "site": number, "export": record.export, "hits": record.hits, "stack": stack }));
        }
    }

    /// Nothing fails any more; whether something did.
    fn stop(&self) -> bool {
        let met = fault::failures() > self.before;
        fault::stop();
        met
    }
}
