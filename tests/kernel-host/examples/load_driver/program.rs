//! Loads a driver image into the kernel host, unloads it and prints what is left: `load_driver IMAGE [SERVICE]`.

use std::process::ExitCode;

use kernel_host::{Kernel, KernelConfig};

pub fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(image) = arguments.next() else {
        eprintln!("usage: load_driver IMAGE [SERVICE]");
        return ExitCode::from(2);
    };
    let service = arguments.next().unwrap_or_else(|| "driver".to_owned());
    let kernel = Kernel::boot(KernelConfig { debug_output: true, ..KernelConfig::default() });
    match kernel.load_driver(&image, &service) {
        Ok(driver) => driver.unload(),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    let report = kernel.shutdown();
    print!("{report}");
    if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
